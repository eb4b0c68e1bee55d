//! Where our scheduler and Clusternet's differ by choice; one switch for each.

use serde::{Deserialize, Serialize};

/// Choices of a scheduler. The default is ours; [`Policy::clusternet`] is what the original does, for a take-over that
/// must not move anything and for replaying its recorded answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// A NoSchedule taint unbinds what is bound. Otherwise only NoExecute does, as in Kubernetes.
    pub no_schedule_evicts: bool,
    /// When no cluster fits, all bindings are cleared. Otherwise they stay and the condition says why.
    pub clear_when_nothing_fits: bool,
    /// maxClusters, minClusters, preferredClusters and topologySpreadConstraints are ignored.
    pub ignore_dynamic_options: bool,
    /// Static dividing without any weight copies the whole workload to each cluster. Otherwise it divides evenly and warns.
    pub zero_weights_copy: bool,
    /// Static dividing follows the clusters there are: one that joins gets its share at once. Otherwise it does so at the next
    /// change of the spec or a total.
    pub divide_on_join: bool,
    /// Replicas that were just placed count as used before the predictor sees them.
    pub reserve_growth: bool,
    /// Divided workloads leave clusters that stopped reporting.
    pub fail_over: bool,
    /// Percentage of clusters whose predictor may fail without failing the whole Subscription, 0 to 100.
    pub percentage_of_clusters_to_tolerate: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            no_schedule_evicts: false,
            clear_when_nothing_fits: false,
            ignore_dynamic_options: false,
            zero_weights_copy: false,
            divide_on_join: true,
            reserve_growth: true,
            fail_over: true,
            percentage_of_clusters_to_tolerate: 100,
        }
    }
}

impl Policy {
    /// Clusternet's choices, with its gates FailOver and FeasibleClustersToleration on.
    pub fn clusternet() -> Self {
        Self {
            no_schedule_evicts: true,
            clear_when_nothing_fits: true,
            ignore_dynamic_options: true,
            zero_weights_copy: true,
            divide_on_join: false,
            reserve_growth: false,
            fail_over: true,
            percentage_of_clusters_to_tolerate: 10,
        }
    }
}
