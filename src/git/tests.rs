//! The room against real `git`: what it writes `git` reads, what `git` writes it reads, over every transport that a test can have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::*;

/// A directory with repositories, and a `git` that knows nothing of this machine.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    pub(crate) fn git(&self, at: &Path, args: &[&str]) -> String {
        let out = self.command(at, args).output().expect("git runs");
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn command(&self, at: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Somebody").env(format!("GIT_{who}_EMAIL"), "somebody@example.org");
            command.env(format!("GIT_{who}_DATE"), "1700000000 +0100");
        }
        command.current_dir(at).args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]).args(args);
        command
    }

    /// A bare repository with one commit on `main`, and a clone of it.
    pub(crate) fn with_commit(&self, files: &[(&str, &str)]) -> (PathBuf, PathBuf) {
        let bare = self.path("bare.git");
        self.git(self.dir.path(), &["init", "-q", "--bare", "bare.git"]);
        self.git(self.dir.path(), &["clone", "-q", "bare.git", "work"]);
        let work = self.path("work");
        self.commit(&work, files, "first");
        (bare, work)
    }

    pub(crate) fn commit(&self, work: &Path, files: &[(&str, &str)], message: &str) -> ObjectId {
        for (path, content) in files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, content).expect("file");
        }
        self.git(work, &["add", "-A"]);
        self.git(work, &["commit", "-q", "--allow-empty", "-m", message]);
        self.git(work, &["push", "-q", "origin", "HEAD:main"]);
        self.git(work, &["rev-parse", "HEAD"]).parse().expect("id")
    }

    pub(crate) fn room(&self) -> Git {
        Git::new(Options { directory: self.path("mirrors"), local_threads: 2, network_threads: 4 })
    }
}

async fn local(git: &Git, path: &Path) -> Remote {
    git.remote(&Url::from(path), &Access::anonymous()).await.expect("remote")
}

fn who() -> Signature {
    Signature { name: "Anabranch".to_owned(), email: "anabranch@localhost".to_owned(), seconds: 1_700_000_000, offset: 0 }
}

fn draft(parent: Option<ObjectId>, files: &[(&str, &str)]) -> Draft {
    Draft {
        parent,
        files: files.iter().map(|(p, c)| ((*p).to_owned(), Content::new(c.as_bytes()))).collect(),
        ours: Arc::new(|path: &str| path.starts_with("ours/")),
        message: Arc::new(|changes: &Changes| format!("{} changed\n", changes.paths().len())),
        author: who(),
        committer: who(),
    }
}

fn update(branch: &str, old: Option<ObjectId>, written: &Written) -> RefUpdate {
    match written {
        Written::Commit { id, objects, .. } => {
            RefUpdate { name: format!("refs/heads/{branch}"), old: old.unwrap_or(ObjectId::ZERO), new: *id, objects: objects.clone() }
        }
        Written::Unchanged => panic!("nothing written"),
    }
}

#[tokio::test]
async fn resolve_and_read() {
    let stage = Stage::new();
    let (bare, work) = stage.with_commit(&[("apps/web.yaml", "a: 1\n"), ("apps/deep/x.yaml", "b: 2\n"), ("other.txt", "no\n")]);
    std::os::unix::fs::symlink("../../etc/passwd", work.join("apps/link.yaml")).expect("link");
    let tip = stage.commit(&work, &[], "link");
    stage.git(&work, &["tag", "-a", "-m", "v", "v1.2.0"]);
    stage.git(&work, &["tag", "v1.1.0", "HEAD~1"]);
    stage.git(&work, &["push", "-q", "--tags"]);
    let room = stage.room();
    let remote = local(&room, &bare).await;
    let found = |selector: Selector| {
        let remote = remote.clone();
        async move {
            match remote.resolve(&selector).await {
                Ok(revision) => revision.to_string().replace(&tip.to_string(), "TIP"),
                Err(error) => error.to_string(),
            }
        }
    };
    assert_eq!(found(Selector::Default).await, "main@sha1:TIP");
    assert_eq!(found(Selector::Branch("main".to_owned())).await, "main@sha1:TIP");
    assert_eq!(found(Selector::Tag("v1.2.0".to_owned())).await, "v1.2.0@sha1:TIP");
    assert_eq!(found(Selector::Range("1.x".to_owned())).await, "v1.2.0@sha1:TIP");
    assert_eq!(found(Selector::Commit(tip)).await, "sha1:TIP");
    assert_eq!(found(Selector::Branch("mai".to_owned())).await, "resolve revision: there is no branch `mai`");
    assert_eq!(found(Selector::Branch("a..b".to_owned())).await, "resolve revision: `a..b` is not a valid name");

    let listing = remote.list(tip, &Filter::under(["./apps/", "absent"])).await.expect("listing");
    let shown: Vec<String> = listing.files.iter().map(|f| format!("{} {:?}", f.path, f.mode)).collect();
    assert_eq!(shown, ["apps/deep/x.yaml File", "apps/link.yaml Symlink", "apps/web.yaml File"]);
    assert_eq!(listing.missing, ["absent"]);
    let ids: Vec<ObjectId> = listing.files.iter().map(|f| f.id).collect();
    let contents = remote.read(&ids, 1000).await.expect("blobs");
    assert_eq!(contents[2].as_deref().expect("content"), b"a: 1\n");
    let small = remote.read(&ids, 3).await.expect("blobs");
    assert_eq!(small[2].as_ref().expect_err("too large").to_string(), "read file: 5 bytes, more than 3");
}

#[tokio::test]
async fn empty_and_absent_repositories() {
    let stage = Stage::new();
    stage.git(stage.dir.path(), &["init", "-q", "--bare", "bare.git"]);
    let room = stage.room();
    let remote = local(&room, &stage.path("bare.git")).await;
    let error = remote.resolve(&Selector::Default).await.expect_err("empty");
    assert_eq!((error.to_string().as_str(), error.reason()), ("resolve revision: the repository is empty", "EmptyRepository"));
    let remote = local(&room, &stage.path("nowhere.git")).await;
    let error = remote.resolve(&Selector::Default).await.expect_err("absent");
    assert_eq!(error.reason(), "RepositoryNotFound");
}

#[tokio::test]
async fn commits_are_what_git_makes_of_them() {
    let stage = Stage::new();
    let (bare, _) = stage.with_commit(&[("README.md", "mine\n"), ("ours/old.yaml", "x: 1\n"), ("ours.d/y", "1"), ("ours-", "2")]);
    let room = stage.room();
    let remote = local(&room, &bare).await;
    let tip = remote.resolve(&Selector::Default).await.expect("tip").commit;
    let written = remote.write(vec![draft(Some(tip), &[("ours/a/b.yaml", "b: 1\n"), ("ours/a.yaml", "a: 1\n")])]).await.expect("batch").remove(0).expect("written");
    let Written::Commit { id, tree, changes, .. } = &written else { panic!("a commit") };
    assert_eq!(changes.added, ["ours/a.yaml", "ours/a/b.yaml"]);
    assert_eq!(changes.removed, ["ours/old.yaml"]);
    let out = remote.push(vec![update("clusters/harbor", None, &written)]).await.expect("push");
    assert_eq!(out["refs/heads/clusters/harbor"], RefOutcome::Done);
    stage.git(&bare, &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(stage.git(&bare, &["rev-parse", "clusters/harbor^{tree}"]), tree.to_string());
    assert_eq!(stage.git(&bare, &["ls-tree", "-r", "--name-only", "clusters/harbor"]), "README.md\nours-\nours.d/y\nours/a.yaml\nours/a/b.yaml");
    assert_eq!(stage.git(&bare, &["log", "-1", "--format=%an|%ae|%ad|%B", "clusters/harbor"]), "Anabranch|anabranch@localhost|Tue Nov 14 22:13:20 2023 +0000|3 changed");
    assert_eq!(stage.git(&bare, &["rev-parse", "clusters/harbor^"]), tip.to_string());

    // The same state again is no commit, and in the same order the ids are the same.
    let again = remote.write(vec![draft(Some(*id), &[("ours/a/b.yaml", "b: 1\n"), ("ours/a.yaml", "a: 1\n")])]).await.expect("batch").remove(0).expect("written");
    assert_eq!(again, Written::Unchanged);
}

#[tokio::test]
async fn paths_that_break_are_refused() {
    let stage = Stage::new();
    let (bare, _) = stage.with_commit(&[("a", "1")]);
    let room = stage.room();
    let remote = local(&room, &bare).await;
    for path in ["", "/a", "a/", "a//b", "../a", "a/./b", ".git/config", "a/.GIT/x", "git~1/x", "a\\b", "a\nb"] {
        let out = remote.write(vec![draft(None, &[(path, "1")])]).await.expect("batch").remove(0);
        assert_eq!(out.expect_err("refused").to_string(), format!("write tree: `{path}` is not a valid path"));
    }
    let out = remote.write(vec![draft(None, &[("a", "1"), ("a/b", "2")])]).await.expect("batch").remove(0);
    assert_eq!(out.expect_err("refused").to_string(), "write tree: `a/b` would be a file and a directory");
}

#[tokio::test]
async fn a_lost_race_is_seen() {
    let stage = Stage::new();
    let (bare, work) = stage.with_commit(&[("ours/a", "1")]);
    let room = stage.room();
    let remote = local(&room, &bare).await;
    let old = remote.resolve(&Selector::Default).await.expect("tip").commit;
    let written = remote.write(vec![draft(Some(old), &[("ours/a", "2")])]).await.expect("batch").remove(0).expect("written");
    let newer = stage.commit(&work, &[("ours/b", "person")], "by a person");
    let out = remote.push(vec![update("main", Some(old), &written)]).await.expect("push");
    assert_eq!(out["refs/heads/main"], RefOutcome::Lost { found: Some(newer) });
    // Making what exists already is lost as well; a directory in the way is refused.
    let out = remote.push(vec![update("main", None, &written), update("main/x", None, &written)]).await.expect("push");
    assert_eq!(out["refs/heads/main"], RefOutcome::Lost { found: Some(newer) });
    assert!(matches!(out["refs/heads/main/x"], RefOutcome::Refused { why: Refusal::Name, .. }), "{out:?}");
}

#[tokio::test]
async fn hooks_are_honoured() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    let (bare, _) = stage.with_commit(&[("ours/a", "1")]);
    let hook = bare.join("hooks/update");
    std::fs::create_dir_all(bare.join("hooks")).expect("hooks");
    std::fs::write(&hook, "#!/bin/sh\ncase $1 in refs/heads/clusters/bad) echo no pushes on Fridays >&2; exit 1;; esac\n").expect("hook");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let room = stage.room();
    let remote = local(&room, &bare).await;
    let old = remote.resolve(&Selector::Default).await.expect("tip").commit;
    let written = remote.write(vec![draft(Some(old), &[("ours/a", "2")])]).await.expect("batch").remove(0).expect("written");
    let out = remote.push(vec![update("clusters/bad", None, &written), update("clusters/good", None, &written)]).await.expect("push");
    assert_eq!(out["refs/heads/clusters/good"], RefOutcome::Done);
    let RefOutcome::Refused { why, text } = &out["refs/heads/clusters/bad"] else { panic!("{out:?}") };
    assert_eq!(*why, Refusal::Hook);
    assert!(text.contains("no pushes on Fridays"), "{text}");
}

#[tokio::test]
async fn a_thousand_branches_in_one_push() {
    let stage = Stage::new();
    let room = stage.room();
    let remote = local(&room, &stage.path("delivery.git")).await;
    remote.init().await.expect("made");
    let drafts: Vec<Draft> = (0..1000).map(|n| draft(None, &[("ours/a.yaml", "same: 1\n"), ("ours/b.yaml", &format!("cluster: {n}\n"))])).collect();
    let written = remote.write(drafts).await.expect("batch");
    let updates = written.iter().enumerate().map(|(n, w)| update(&format!("clusters/c{n}"), None, w.as_ref().expect("written"))).collect();
    let out = remote.push(updates).await.expect("push");
    assert!(out.values().all(|o| *o == RefOutcome::Done));
    assert_eq!(remote.branches("clusters/").await.expect("branches").len(), 1000);
    stage.git(&stage.path("delivery.git"), &["fsck", "--strict"]);
}

/// The smart protocol against `git` itself, without a network: a bare repository with a hook goes through `git receive-pack`.
#[tokio::test]
async fn deletion_through_the_protocol() {
    let stage = Stage::new();
    let (bare, work) = stage.with_commit(&[("ours/a", "1")]);
    stage.git(&work, &["push", "-q", "origin", "HEAD:refs/heads/old"]);
    stage.git(&bare, &["config", "receive.denyNonFastForwards", "false"]);
    let room = stage.room();
    let remote = local(&room, &bare).await;
    let tip = remote.resolve(&Selector::Branch("old".to_owned())).await.expect("tip").commit;
    let gone = RefUpdate { name: "refs/heads/old".to_owned(), old: tip, new: ObjectId::ZERO, objects: Vec::new() };
    assert_eq!(remote.push(vec![gone.clone()]).await.expect("push")["refs/heads/old"], RefOutcome::Done);
    assert_eq!(remote.push(vec![gone]).await.expect("push")["refs/heads/old"], RefOutcome::Done);
    assert_eq!(stage.git(&bare, &["branch", "--list", "old"]), "");
}

mod over_http {
    //! The smart protocol over HTTP, against `git http-backend` behind a small server of the test.

    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::process::Stdio;
    use std::sync::Mutex;

    use super::*;

    /// What the server does besides serving.
    #[derive(Default, Clone)]
    struct Manner {
        authorization: Option<String>,
        redirect: Option<String>,
        answer: Option<(u16, &'static str)>,
    }

    struct Server {
        port: u16,
        seen: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn start(root: PathBuf, manner: Manner) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("port");
            let port = listener.local_addr().expect("address").port();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let log = seen.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (root, manner, log) = (root.clone(), manner.clone(), log.clone());
                    std::thread::spawn(move || serve(stream, &root, &manner, &log));
                }
            });
            Self { port, seen }
        }

        fn url(&self, user: &str) -> Url {
            format!("http://{user}127.0.0.1:{}/bare.git", self.port).parse().expect("url")
        }

        fn requests(&self) -> Vec<String> {
            std::mem::take(&mut self.seen.lock().expect("log"))
        }
    }

    fn serve(stream: TcpStream, root: &Path, manner: &Manner, log: &Mutex<Vec<String>>) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut writer = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let mut headers = BTreeMap::new();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).ok()?;
                let Some((name, value)) = header.trim().split_once(": ") else { break };
                headers.insert(name.to_lowercase(), value.to_owned());
            }
            let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let mut words = line.split_whitespace();
            let (method, target) = (words.next()?, words.next()?);
            let authorization = headers.get("authorization");
            log.lock().ok()?.push(format!("{method} {target}{}", if authorization.is_some() { " with credential" } else { "" }));
            if let Some(base) = &manner.redirect {
                write!(writer, "HTTP/1.1 302 Found\r\nLocation: {base}{target}\r\nContent-Length: 0\r\n\r\n").ok()?;
                continue;
            }
            if let Some((status, extra)) = manner.answer {
                write!(writer, "HTTP/1.1 {status} Something\r\n{extra}Content-Length: 2\r\n\r\nno").ok()?;
                continue;
            }
            if manner.authorization.is_some() && manner.authorization.as_ref() != authorization {
                write!(writer, "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n").ok()?;
                continue;
            }
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let mut command = Command::new("git");
            command.env_clear().env("PATH", std::env::var_os("PATH")?).env("HOME", root).env("GIT_CONFIG_NOSYSTEM", "1");
            command.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1").env("PATH_INFO", path).env("QUERY_STRING", query);
            command.env("REQUEST_METHOD", method).env("REMOTE_USER", "someone").env("CONTENT_LENGTH", length.to_string());
            if let Some(kind) = headers.get("content-type") {
                command.env("CONTENT_TYPE", kind);
            }
            if let Some(version) = headers.get("git-protocol") {
                command.env("GIT_PROTOCOL", version);
            }
            let mut child = command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
            let mut input = child.stdin.take()?;
            let feed = std::thread::spawn(move || input.write_all(&body));
            let mut out = Vec::new();
            child.stdout.take()?.read_to_end(&mut out).ok()?;
            child.wait().ok()?;
            feed.join().ok()?.ok();
            let split = out.windows(4).position(|w| w == b"\r\n\r\n")?;
            let head = String::from_utf8_lossy(&out[..split]).into_owned();
            let status = head.lines().find_map(|l| l.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
            let rest = &out[split + 4..];
            // In chunks, so that this way of framing is walked too.
            write!(writer, "HTTP/1.1 {status}\r\n").ok()?;
            for line in head.lines().filter(|l| !l.starts_with("Status: ")) {
                write!(writer, "{line}\r\n").ok()?;
            }
            write!(writer, "Transfer-Encoding: chunked\r\n\r\n").ok()?;
            for chunk in rest.chunks(1000) {
                write!(writer, "{:x}\r\n", chunk.len()).ok()?;
                writer.write_all(chunk).ok()?;
                write!(writer, "\r\n").ok()?;
            }
            write!(writer, "0\r\n\r\n").ok()?;
        }
    }

    fn access() -> Access {
        Access { timeout: Duration::from_secs(20), ..Access::anonymous() }
    }

    #[tokio::test]
    async fn fetch_shallow_and_then_only_what_changed() {
        let stage = Stage::new();
        let noise: String = (0..4000).map(|n| format!("{}\n", ObjectId::hash(ObjectKind::Blob, format!("{n}").as_bytes()))).collect();
        let (_, work) = stage.with_commit(&[("big.txt", &noise), ("a.yaml", "a: 1\n")]);
        let server = Server::start(stage.dir.path().to_path_buf(), Manner::default());
        let room = stage.room();
        let remote = room.remote(&server.url(""), &access()).await.expect("remote");
        let first = remote.resolve(&Selector::Branch("main".to_owned())).await.expect("resolves").commit;
        let cost = remote.fetch(&[first], &[]).await.expect("fetched").bytes;
        assert!(cost > 50_000, "{cost}");
        assert_eq!(remote.fetch(&[first], &[]).await.expect("fetched").bytes, 0);
        let second = stage.commit(&work, &[("a.yaml", "a: 2\n")], "second");
        server.requests();
        assert_eq!(remote.resolve(&Selector::Branch("main".to_owned())).await.expect("resolves").commit, second);
        let cost = remote.fetch(&[second], &[first]).await.expect("fetched").bytes;
        assert!(cost < 2_000, "{cost}");
        assert_eq!(server.requests(), ["POST /bare.git/git-upload-pack", "POST /bare.git/git-upload-pack"], "one round trip each");
        let listing = remote.list(second, &Filter::everything()).await.expect("listing");
        assert_eq!(listing.files.len(), 2);
        let gone: ObjectId = "0123456789012345678901234567890123456789".parse().expect("id");
        assert_eq!(remote.fetch(&[gone], &[second]).await.expect_err("gone").to_string(), format!("fetch: the repository has no commit {gone}"));
    }

    #[tokio::test]
    async fn commit_and_push_from_a_mirror() {
        let stage = Stage::new();
        let (bare, _) = stage.with_commit(&[("README.md", "mine\n"), ("ours/a", "1")]);
        stage.git(&bare, &["config", "http.receivepack", "true"]);
        let server = Server::start(stage.dir.path().to_path_buf(), Manner::default());
        let room = stage.room();
        let remote = room.remote(&server.url(""), &access()).await.expect("remote");
        let tips = remote.branches("").await.expect("branches");
        let tip = tips["main"];
        remote.fetch(&[tip], &[]).await.expect("fetched");
        let drafts = (0..150).map(|n| draft(Some(tip), &[("ours/a", &format!("number {n}"))])).collect();
        let written = remote.write(drafts).await.expect("batch");
        let updates = written.iter().enumerate().map(|(n, w)| update(&format!("clusters/c{n}"), None, w.as_ref().expect("written"))).collect();
        let out = remote.push(updates).await.expect("push");
        assert!(out.values().all(|o| *o == RefOutcome::Done), "{out:?}");
        stage.git(&bare, &["fsck", "--strict", "--no-dangling"]);
        assert_eq!(stage.git(&bare, &["show", "clusters/c42:ours/a"]), "number 42");
        assert_eq!(stage.git(&bare, &["show", "clusters/c42:README.md"]), "mine");
        // A branch that is not what it was thought to be is lost before anything is sent.
        let again = update("clusters/c1", Some(tip), written[2].as_ref().expect("written"));
        let out = remote.push(vec![again]).await.expect("push");
        assert!(matches!(out["refs/heads/clusters/c1"], RefOutcome::Lost { found: Some(_) }), "{out:?}");
    }

    #[tokio::test]
    async fn credentials() {
        let stage = Stage::new();
        stage.with_commit(&[("a", "1")]);
        let manner = Manner { authorization: Some("Basic c29tZW9uZTpodW50ZXIy".to_owned()), ..Manner::default() };
        let server = Server::start(stage.dir.path().to_path_buf(), manner);
        let room = stage.room();
        let wrong = room.remote(&server.url(""), &access()).await.expect("remote");
        let error = wrong.resolve(&Selector::Default).await.expect_err("refused");
        assert_eq!((error.reason(), error.is_transient()), ("AuthenticationFailed", false));
        let right = Access { credential: Some(Credential::Basic { user: "someone".to_owned(), password: Secret::new("hunter2") }), ..access() };
        room.remote(&server.url(""), &right).await.expect("remote").resolve(&Selector::Default).await.expect("resolves");
        let inside = room.remote(&server.url("someone:hunter2@"), &access()).await.expect("remote");
        inside.resolve(&Selector::Default).await.expect("resolves");
        assert!(!format!("{:?} {:?}", right, inside.url()).contains("hunter2"));
    }

    #[tokio::test]
    async fn a_credential_stays_with_its_host() {
        let stage = Stage::new();
        stage.with_commit(&[("a", "1")]);
        let target = Server::start(stage.dir.path().to_path_buf(), Manner::default());
        let manner = Manner { redirect: Some(format!("http://127.0.0.1:{}", target.port)), ..Manner::default() };
        let server = Server::start(stage.dir.path().to_path_buf(), manner);
        let room = stage.room();
        let remote = room.remote(&server.url("someone:hunter2@"), &access()).await.expect("remote");
        remote.resolve(&Selector::Default).await.expect("resolves");
        assert_eq!(server.requests(), ["GET /bare.git/info/refs?service=git-upload-pack with credential"]);
        assert_eq!(target.requests(), ["GET /bare.git/info/refs?service=git-upload-pack", "POST /bare.git/git-upload-pack"]);
    }

    #[tokio::test]
    async fn what_hosts_say() {
        let stage = Stage::new();
        let room = stage.room();
        for (answer, reason, transient) in [
            ((429, "Retry-After: 7\r\n"), "RateLimited", true),
            ((403, "X-RateLimit-Remaining: 0\r\n"), "RateLimited", true),
            ((403, ""), "AuthenticationFailed", false),
            ((404, ""), "RepositoryNotFound", false),
            ((502, ""), "GitOperationFailed", true),
        ] {
            let server = Server::start(stage.dir.path().to_path_buf(), Manner { answer: Some(answer), ..Manner::default() });
            let remote = room.remote(&server.url(""), &access()).await.expect("remote");
            let error = remote.resolve(&Selector::Default).await.expect_err("refused");
            assert_eq!((error.reason(), error.is_transient()), (reason, transient), "{error}");
        }
        let secret = Access { credential: Some(Credential::Bearer(Secret::new("t"))), ..access() };
        let url: Url = "http://git.example.org/a".parse().expect("url");
        let error = room.remote(&url, &secret).await.err().expect("refused");
        assert_eq!(error.to_string(), "reach git.example.org: a credential is not sent over plain http");
    }

    #[tokio::test]
    async fn a_silent_host_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let url: Url = format!("http://127.0.0.1:{}/a", listener.local_addr().expect("address").port()).parse().expect("url");
        let stage = Stage::new();
        let quick = Access { timeout: Duration::from_millis(200), ..access() };
        let remote = stage.room().remote(&url, &quick).await.expect("remote");
        assert_eq!(remote.resolve(&Selector::Default).await.expect_err("silent").reason(), "Timeout");
    }
}
