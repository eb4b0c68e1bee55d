//! The demo is killed at any instant and started again: everything becomes healthy, nothing is left over, nothing is committed twice.
//!
//! `KILLS` says how many instants are tried (6), `SEED` which ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cli::embedded::{self, Keep, Role};
use engine::{CancellationToken, Tasks};
use rand::{Rng as _, SeedableRng as _};

use crate::bench::{git, until};

const CHILDREN: [&str; 3] = ["harbor", "meadow", "summit"];

/// Resources whose objects come from the branches; what the cluster itself makes of them is left out.
const DELIVERED: [&str; 10] = [
    "/api/v1/namespaces",
    "/api/v1/services",
    "/api/v1/configmaps",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/policy/v1/poddisruptionbudgets",
];

/// Runs the demo to its end, or kills it after a time.
fn demo(folder: &Path, kill_after: Option<Duration>) -> (ExitStatus, String) {
    let log = folder.with_extension("log");
    let out = std::fs::File::create(&log).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["demo", "--once", "--timeout", "80s", "--dir"])
        .arg(folder)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    if let Some(after) = kill_after {
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    (status, std::fs::read_to_string(&log).unwrap())
}

/// What a run left behind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    /// Content of each cluster's branch.
    trees: BTreeMap<&'static str, String>,
    /// Objects in each child.
    objects: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Objects of a child whose process has ended.
async fn objects(folder: &Path) -> BTreeSet<String> {
    let tasks = Tasks::new(&CancellationToken::new());
    let server = embedded::start(&Keep::Folder(folder.to_owned()), &Role::Child(simulator::Options::with_nodes(2)), None, &tasks).await.unwrap();
    let dynamic = cluster::Dynamic::new(server.admin());
    let mut found = BTreeSet::new();
    for resource in DELIVERED {
        let list = until("the child answers", || async { dynamic.call("GET", resource, None, None).await.ok() }).await;
        for item in list["items"].as_array().unwrap() {
            let name = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
            found.insert(format!("{resource} {}/{}", name("namespace"), name("name")));
        }
    }
    tasks.stop(Duration::from_secs(5)).await;
    found
}

async fn left(folder: &Path) -> Left {
    let delivery = folder.join("delivery.git");
    let mut left = Left { trees: BTreeMap::new(), objects: BTreeMap::new() };
    for child in CHILDREN {
        let branch = format!("refs/heads/clusters/{child}");
        left.trees.insert(child, git(&delivery, &["rev-parse", &format!("{branch}^{{tree}}")]));
        left.objects.insert(child, objects(&folder.join("children").join(child)).await);
        let commits = git(&delivery, &["log", "--format=%T %H %s", &branch]);
        let trees: BTreeSet<&str> = commits.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(trees.len(), commits.lines().count(), "{child}: the same content is committed twice\n{commits}");
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_survives_kill_9_at_any_instant() {
    let number = |name: &str, usual| std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap());
    let (kills, seed) = (number("KILLS", 6), number("SEED", 1));
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();

    let quiet = folder.path().join("quiet");
    let started = Instant::now();
    let (status, said) = demo(&quiet, None);
    assert!(status.success(), "{said}");
    let whole = started.elapsed();
    let wanted = left(&quiet).await;
    assert!(wanted.objects.values().all(|objects| objects.len() > 5), "{wanted:?}");

    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    for round in 0..kills {
        let dir = folder.path().join(format!("round-{round}"));
        let after = whole.mul_f64(random.random_range(0.0..1.0));
        demo(&dir, Some(after));
        let (status, said) = demo(&dir, None);
        assert!(status.success(), "seed {seed}, round {round}: killed after {after:?}, then\n{said}");
        assert_eq!(left(&dir).await, wanted, "seed {seed}, round {round}: killed after {after:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    // A start with nothing to do commits nothing.
    let before = git(&quiet.join("delivery.git"), &["for-each-ref"]);
    assert!(demo(&quiet, None).0.success());
    assert_eq!(git(&quiet.join("delivery.git"), &["for-each-ref"]), before);
}
