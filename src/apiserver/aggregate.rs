//! Group versions that are served elsewhere: by mounts.

use crate::core::Core;

/// Whether a group version is served by a mount.
pub(crate) fn known(core: &Core, group: &str, version: &str) -> bool {
    core.mounts.read().iter().any(|m| m.groups().iter().any(|g| g.group == group && g.version == version))
}
