//! Writes `schemas/crds/*.yaml` and `schemas/json/*.json`; a test fails when they are stale.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let (crds, json) = (root.join("crds"), root.join("json"));
    fs::create_dir_all(&crds)?;
    fs::create_dir_all(&json)?;
    for crd in api::crds() {
        let name = api::object::name(&crd);
        fs::write(crds.join(format!("{name}.yaml")), serde_yaml::to_string(&crd)?)?;
    }
    for (name, schema) in api::schemas() {
        fs::write(json.join(name), serde_json::to_string_pretty(&schema)? + "\n")?;
    }
    Ok(())
}
