//! `anabranch bench schedule`: scheduling cycles over a model fleet.

use std::process::ExitCode;

use scheduler::bench::{Strategy, burst, cycles};
use program::exit::print;

use crate::args::ScheduleBench;
use crate::demo::table;

/// Subscriptions of the burst, and the clusters they meet: the aim is 10,000 on 1,000 clusters in 30 s.
const BURST: (usize, usize) = (10_000, 1_000);

/// Measures and prints.
pub(super) fn run(args: &ScheduleBench) -> anyhow::Result<ExitCode> {
    let ScheduleBench { clusters, cycles: count, json } = args;
    let mut rows = vec![["STRATEGY", "CLUSTERS", "CYCLES", "P50 MS", "P99 MS", "PER SECOND", "MIB"].map(str::to_owned)];
    for clusters in clusters {
        for strategy in Strategy::ALL {
            let row = cycles(strategy, *clusters, *count);
            if *json {
                print(&format!("{}\n", serde_json::to_string(&row)?));
                continue;
            }
            rows.push([
                format!("{strategy:?}"),
                row.clusters.to_string(),
                row.cycles.to_string(),
                format!("{:.3}", row.p50_ms),
                format!("{:.3}", row.p99_ms),
                format!("{:.0}", row.per_second),
                format!("{:.1}", row.memory_mib),
            ]);
        }
    }
    if *json {
        print(&format!("{}\n", serde_json::to_string(&burst(BURST.0, BURST.1))?));
    } else {
        print(&table(&rows));
        let row = serde_json::to_value(burst(BURST.0, BURST.1))?;
        print(&format!("\nburst of {} subscriptions on {} clusters: {row}\n", BURST.0, BURST.1));
    }
    Ok(ExitCode::SUCCESS)
}
