//! What the tests with processes share: processes that end with their value, ports, waiting, Git, objects from files.

use std::future::Future;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for anything: machines under load are slow, and a fault is told at once by whoever waits.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process that is killed when the value goes; its output is kept in a file.
pub(crate) struct Process {
    name: String,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts one; its output goes to `FOLDER/NAME.log`.
    pub(crate) fn start(name: &str, program: &Path, folder: &Path, arguments: &[String]) -> Process {
        Self::start_with(name, program, folder, arguments, &[])
    }

    /// The same with an environment.
    pub(crate) fn start_with(name: &str, program: &Path, folder: &Path, arguments: &[String], environment: &[(&str, &str)]) -> Process {
        let log = folder.join(format!("{name}.log"));
        let out = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env("ANABRANCH_LOG", "info,kube=warn")
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", program.display()));
        Process { name: name.to_owned(), child: Mutex::new(child), log }
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Lines that tell that an account of `deploy/` lacks a right. Cluster's own identities are made under way, and a server
    /// may know them a moment later than they do.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let denied = |line: &&str| line.contains("is forbidden") && line.contains("system:serviceaccount:clusternet-system:");
        self.said().lines().filter(denied).map(|line| format!("{}: {line}", self.name)).collect()
    }

    /// Whether it has not ended by itself.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.child.lock().unwrap().try_wait(), Ok(None))
    }

    /// Kills it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<&str> = said.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            let _ = writeln!(std::io::stderr(), "--- {} ---\n{tail}", self.name);
        }
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Asks until there is an answer.
pub(crate) async fn until<T, F, Fut>(what: &str, ask: F) -> T
where
    F: Fn() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let ask = &ask;
    until_so(what, || async move { ask().await.ok_or_else(String::new) }).await
}

/// The same, of something that says what it sees in place of it.
pub(crate) async fn until_so<T, F, Fut>(what: &str, ask: F) -> T
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let started = Instant::now();
    loop {
        // An answer that does not come counts as none.
        let seen = match tokio::time::timeout(Duration::from_secs(20), ask()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(seen)) => seen,
            Err(_) => "no answer".to_owned(),
        };
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what} {seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs git without any configuration of the machine.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let run = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .envs([("GIT_AUTHOR_NAME", "t"), ("GIT_AUTHOR_EMAIL", "t@example.org"), ("GIT_COMMITTER_NAME", "t"), ("GIT_COMMITTER_EMAIL", "t@example.org")])
        .output()
        .unwrap();
    assert!(run.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).trim().to_owned()
}

/// The Secret of a bootstrap token, `id.secret`, with which clusters may ask to join; for ever, or until a time.
pub(crate) fn bootstrap_token(token: &str, expiration: Option<&str>) -> Value {
    let (id, secret) = token.split_once('.').unwrap();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:clusternet:register-cluster-token",
        },
    });
    if let Some(end) = expiration {
        object["stringData"]["expiration"] = json!(end);
    }
    object
}

/// Every document of a YAML file.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    use serde::Deserialize as _;
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()).filter(|one| !one.is_null()).collect()
}

/// Applies objects one after the other; what a definition makes possible is waited for.
pub(crate) async fn apply_all(admin: &kube::Client, objects: &[Value]) {
    let dynamic = cluster::Dynamic::new(admin.clone());
    let discovery = cluster::Discovery::new(admin.clone());
    let how = cluster::dynamic::ApplyAs { manager: "test", force: true, dry_run: false };
    for object in objects {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let what = format!("{kind} {} can be applied", object["metadata"]["name"]);
        until_so(&what, || async {
            let resource = match discovery.resolve(api_version, kind).await {
                Ok(resource) => resource,
                Err(error) => {
                    discovery.expire();
                    return Err(cluster::error::chain(&error));
                }
            };
            dynamic.apply(&resource, object, how).await.map(|_| ()).map_err(|error| cluster::error::message(&error))
        })
        .await;
    }
}
