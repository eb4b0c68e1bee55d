//! A tour with kubectl: what a person types must print the same on the embedded parent as on a real API server.
//!
//! `commands` holds a command a line. Each runs in a shell with the same kubectl on both servers; output and exit code are
//! compared, less what differs between any two servers (times, ids, addresses, hashes of names, the order of JSON).

use std::path::{Path, PathBuf};
use std::process::Command;

use cli::embedded::{self, Keep, Role};
use engine::{CancellationToken, Tasks};
use regex::Regex;
use serde_json::Value;

use crate::kube::{self, ControlPlane};
use crate::suites::{self, On};

/// The kubectls to try: those of `KUBECTLS` (a list as PATH is), else the one that was built with the control plane and the one in PATH.
fn kubectls(assets: &Path) -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECTLS") {
        return std::env::split_paths(&list).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file());
    [Some(assets.join("kubectl")), in_path].into_iter().flatten().filter(|file| file.is_file()).collect()
}

/// What differs between two servers that do the same.
struct Normal(Vec<(Regex, &'static str)>);

impl Normal {
    fn new() -> Normal {
        let rules = [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w+ \d{4} \d\d:\d\d:\d\d \S+", "<time>"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
            (r#"(resourceVersion\\?"?: ?\\?"|Resource Version: +)\d+"#, "$1<version>"),
            (r"\b10(\.\d+){3}\b", "<address>"),
            (r"https://[a-z0-9.]+:\d+", "<server>"),
            (r"127\.0\.0\.1:\d+", "<server>"),
            // Hashes of templates, and chance in names.
            (r"\bweb-[0-9a-f]{6,10}\b", "web-<hash>"),
            (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<chance>"),
            // The rest of a line that shows an object as the server happened to write it.
            (r#"(patch: Invalid value: ").*(": json: cannot)"#, "$1<object>$2"),
            // Ages: the last column, or the one before more columns.
            (r"(?m) +\d+(s|m|m\d+s)( |$)", " <age>$2"),
            (r" +", " "),
        ];
        Normal(rules.into_iter().map(|(rule, with)| (Regex::new(rule).unwrap(), with)).collect())
    }

    fn of(&self, text: &str) -> String {
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            return self.texts(&serde_json::to_string_pretty(&value).unwrap());
        }
        self.texts(text)
    }

    fn texts(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, (rule, with)| rule.replace_all(&text, *with).into_owned());
        // The faults of an object come in an order by chance.
        let mut lines: Vec<&str> = text.lines().collect();
        lines.chunk_by_mut(|a, b| a.starts_with("* ") == b.starts_with("* ")).filter(|lines| lines[0].starts_with("* ")).for_each(<[&str]>::sort_unstable);
        lines.join("\n")
    }
}

/// What each command printed.
fn walk(kubectl: &Path, kubeconfig: &str, commands: &[&str], normal: &Normal) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, kubeconfig).unwrap();
    std::os::unix::fs::symlink(kubectl, folder.path().join("kubectl")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let run = |line: &str| {
        Command::new("sh")
            .args(["-c", line])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tour"))
            .env("PATH", &path)
            .env("KUBECONFIG", &config)
            .env("HOME", folder.path())
            .env("LC_ALL", "C")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    };
    assert!(run("kubectl config set-context --current --namespace=tour").status.success());
    commands
        .iter()
        .map(|line| {
            let output = run(line);
            let part = |bytes: &[u8]| normal.of(String::from_utf8_lossy(bytes).trim_end());
            format!("{}\n{}\nexit {:?}", part(&output.stdout), part(&output.stderr), output.status.code())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kubectl_prints_what_it_prints_on_a_real_server() {
    let Some(assets) = kube::assets() else { return };
    let found = kubectls(assets);
    if found.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "CI needs a kubectl: tests/kube/build.sh builds one");
        eprintln!("skipped, there is no kubectl");
        return;
    }
    let commands: Vec<&str> = include_str!("commands").lines().filter(|line| !line.is_empty()).collect();
    let normal = Normal::new();
    let mut faults = Vec::new();
    for kubectl in found {
        let tasks = Tasks::new(&CancellationToken::new());
        let ours = embedded::start(&Keep::Memory, &Role::Parent, Some(([127, 0, 0, 1], 0).into()), &tasks).await.unwrap();
        let real = ControlPlane::start(assets).await;
        let configs = [std::fs::read_to_string(&real.kubeconfig).unwrap(), ours.kubeconfig("ours").unwrap()];
        let walks = std::thread::scope(|scope| {
            let running = configs.each_ref().map(|config| scope.spawn(|| walk(&kubectl, config, &commands, &normal)));
            running.map(|walk| walk.join().unwrap())
        });
        let [real, ours] = walks;
        for (line, (real, ours)) in commands.iter().zip(real.iter().zip(&ours)) {
            if real != ours {
                faults.push(format!("{}: {line}\n--- a real server\n{real}\n--- ours\n{ours}\n", kubectl.display()));
            }
        }
        tasks.stop(std::time::Duration::from_secs(10)).await;
    }
    assert!(faults.is_empty(), "{} commands differ:\n{}", faults.len(), faults.join("\n"));
    for on in [On::Embedded, On::Real] {
        suites::passed("Commands of kubectl that print the same", on, commands.len());
    }
}
