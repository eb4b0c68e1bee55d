//! Repositories on loopback: index, ranges, digests, credentials and redirects, OCI tokens.

use crate::{Client, Credentials, Error, Options, Phase, Reference, Resolved, Secret, choose, repository};
use sha2::Digest as _;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

type Handler = Arc<dyn Fn(&str, &str) -> (u16, String, Vec<u8>) + Send + Sync>;

/// A server that answers each request by path and head.
async fn serve(h: Handler) -> u16 {
    let l = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = l.local_addr().expect("address").port();
    tokio::spawn(async move {
        while let Ok((mut s, _)) = l.accept().await {
            let h = h.clone();
            tokio::spawn(async move {
                let mut buf = Vec::new();
                let mut b = [0; 4096];
                while !buf.windows(4).any(|w| w == b"\r\n\r\n") {
                    match s.read(&mut b).await {
                        Ok(n) if n > 0 => buf.extend_from_slice(&b[..n]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&buf).to_string();
                let path = head.split(' ').nth(1).unwrap_or("/").to_string();
                let (status, headers, body) = h(&path, &head);
                let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len());
                let _ = s.write_all(text.as_bytes()).await;
                let _ = s.write_all(&body).await;
            });
        }
    });
    port
}

fn client(credentials: Option<Credentials>) -> Client {
    Client::new(Options { credentials, plain_http: true, ..Options::default() }).expect("client")
}

fn reference(repository: String, version: &str) -> Reference {
    Reference { repository, chart: "web".into(), version: version.into() }
}

const INDEX: &str = "apiVersion: v1\nentries:\n  db:\n  - version: 9.9.9\n    urls: [db.tgz]\n  web:\n  - version: 1.2.0\n    digest: DIGEST\n    urls:\n    - charts/web-1.2.0.tgz\n  - version: 1.3.0-rc.1\n    urls:\n    - charts/rc.tgz\n  - version: 1.1.0\n    urls:\n    - charts/web-1.1.0.tgz\n  zoo:\n  - version: 1.0.0\n    urls: [z.tgz]\ngenerated: now\n";

#[test]
fn picks_only_the_wanted_chart() {
    let mut p = repository::Picker::new("web");
    for piece in INDEX.as_bytes().chunks(7) {
        p.push(piece);
    }
    p.finish();
    let v = repository::read(&p).expect("readable").expect("there");
    assert_eq!(v.iter().map(|v| v.version.as_str()).collect::<Vec<_>>(), ["1.2.0", "1.3.0-rc.1", "1.1.0"]);
    assert!(!String::from_utf8_lossy(&p.block).contains("9.9.9"));
}

#[test]
fn chooses_by_range() {
    let all: Vec<Resolved> = ["1.2.0", "1.3.0-rc.1", "1.1.0", "2.0.0"].iter().map(|v| Resolved { version: (*v).into(), url: String::new(), digest: None }).collect();
    let pick = |r: &str| choose(&all, r).map(|v| v.version.clone());
    assert_eq!(pick("").as_deref(), Some("2.0.0"));
    assert_eq!(pick("^1").as_deref(), Some("1.2.0"));
    assert_eq!(pick(">1.2.0-0, <2").as_deref(), Some("1.3.0-rc.1"));
    assert_eq!(pick("1.1.0").as_deref(), Some("1.1.0"));
    assert_eq!(pick("3.x"), None);
}

#[tokio::test]
async fn pulls_with_basic_auth_and_checks_the_digest() {
    let good = hex::encode(sha2::Sha256::digest(b"archive"));
    let index = INDEX.replace("DIGEST", &good);
    let port = serve(Arc::new(move |path, head| match path {
        _ if !head.to_lowercase().contains("authorization: basic dtpw") => (401, String::new(), Vec::new()),
        "/repo/index.yaml" => (200, String::new(), index.clone().into_bytes()),
        "/repo/charts/web-1.2.0.tgz" => (200, String::new(), b"archive".to_vec()),
        _ => (404, String::new(), Vec::new()),
    }))
    .await;
    let c = client(Some(Credentials { username: "u".into(), password: Secret::new("p") }));
    let r = reference(format!("http://127.0.0.1:{port}/repo"), "~1.2");
    let p = c.pull(&r).await.expect("pulled");
    assert_eq!((p.version.as_str(), p.digest.as_str()), ("1.2.0", good.as_str()));
    assert_eq!(c.verify(&reference(r.repository.clone(), "7.x")).await.expect("known"), Phase::NotFound);
    assert!(matches!(client(None).pull(&r).await, Err(Error::Status { status: 401, .. })));
}

#[tokio::test]
async fn redirects_lose_credentials_on_another_host() {
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = seen.clone();
    let other = serve(Arc::new(move |_, head| {
        log.lock().expect("lock").push(head.to_lowercase().contains("authorization"));
        (200, String::new(), INDEX.as_bytes().to_vec())
    }))
    .await;
    let port = serve(Arc::new(move |_, _| (302, format!("location: http://127.0.0.1:{other}/index.yaml\r\n"), Vec::new()))).await;
    let c = client(Some(Credentials { username: "u".into(), password: Secret::new("p") }));
    c.versions(&reference(format!("http://127.0.0.1:{port}"), "")).await.expect("index");
    assert_eq!(*seen.lock().expect("lock"), [false]);
}

#[tokio::test]
async fn oci_with_token() {
    let digest = hex::encode(sha2::Sha256::digest(b"layer"));
    let d = digest.clone();
    let port_cell: Arc<Mutex<u16>> = Arc::default();
    let cell = port_cell.clone();
    let port = serve(Arc::new(move |path, head| {
        let head = head.to_lowercase();
        if path.starts_with("/token") {
            return (200, String::new(), br#"{"token":"abc"}"#.to_vec());
        }
        if !head.contains("authorization: bearer abc") {
            let p = *cell.lock().expect("lock");
            return (401, format!("www-authenticate: Bearer realm=\"http://127.0.0.1:{p}/token\",service=\"s\",scope=\"repository:x:pull,push\"\r\n"), Vec::new());
        }
        match path {
            "/v2/charts/web/tags/list" => (200, String::new(), br#"{"tags":["1.0.0","1.1.0_build.1","latest"]}"#.to_vec()),
            "/v2/charts/web/manifests/1.1.0_build.1" => (200, String::new(), format!(r#"{{"layers":[{{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip","digest":"sha256:{d}"}}]}}"#).into_bytes()),
            p if p.ends_with(&d) => (200, String::new(), b"layer".to_vec()),
            _ => (404, String::new(), Vec::new()),
        }
    }))
    .await;
    *port_cell.lock().expect("lock") = port;
    let c = client(Some(Credentials { username: "u".into(), password: Secret::new("p") }));
    let p = c.pull(&reference(format!("oci://127.0.0.1:{port}/charts"), "1.x")).await.expect("pulled");
    assert_eq!((p.version.as_str(), p.digest), ("1.1.0+build.1", digest));
    assert_eq!(c.verify(&reference(format!("oci://127.0.0.1:{port}/charts"), "5.0.0")).await.expect("known"), Phase::NotFound);
}

#[tokio::test]
async fn a_pool_fetches_once_and_keeps_credentials_apart() {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let text = b"apiVersion: v2\nname: web\nversion: 1.2.0\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    archive.append_data(&mut header, "web/Chart.yaml", &text[..]).expect("packed");
    let archive = archive.into_inner().and_then(flate2::write::GzEncoder::finish).expect("packed");
    let index = INDEX.replace("DIGEST", &hex::encode(sha2::Sha256::digest(&archive)));
    let fetched: Arc<Mutex<usize>> = Arc::default();
    let count = fetched.clone();
    let port = serve(Arc::new(move |path, head| match path {
        _ if !head.to_lowercase().contains("authorization: basic dtpw") => (401, String::new(), Vec::new()),
        "/index.yaml" => (200, String::new(), index.clone().into_bytes()),
        "/charts/web-1.2.0.tgz" => {
            *count.lock().expect("lock") += 1;
            (200, String::new(), archive.clone())
        }
        _ => (404, String::new(), Vec::new()),
    }))
    .await;
    let pool = crate::Pool::default();
    let source = |version: &str, password: Option<&str>| crate::pool::Source {
        reference: reference(format!("http://127.0.0.1:{port}"), version),
        credentials: password.map(|p| Credentials { username: "u".into(), password: Secret::new(p) }),
        plain_http: false,
    };
    let (exact, range) = (source("1.2.0", Some("p")), source("^1", Some("p")));
    let (a, b, c) = tokio::join!(pool.load(&exact), pool.load(&exact), pool.load(&range));
    assert_eq!((a.expect("a").version.as_str(), b.expect("b").chart.name(), c.expect("c").version.as_str()), ("1.2.0", "web", "1.2.0"));
    assert!(*fetched.lock().expect("lock") <= 2, "equal wishes are one fetch");
    pool.load(&range).await.expect("kept");
    assert!(*fetched.lock().expect("lock") <= 2, "what is kept is not fetched again");
    assert!(matches!(pool.load(&source("1.2.0", None)).await, Err(Error::Status { status: 401, .. })), "others must show their own credentials");
    assert!(matches!(pool.find(&source("9.9.9", Some("p"))).await, Err(Error::NoVersion { .. })));
}

#[test]
fn versions_and_ranges() {
    use crate::pool::{allows, is_exact};
    for (text, exact) in [("1.2.3", true), ("v1.2.3-rc.1+b", true), ("1.2", false), ("", false), ("^1.2.3", false), ("1.x", false)] {
        assert_eq!(is_exact(text), exact, "{text}");
    }
    for (wanted, have, fits) in [("1.2.3", "1.2.3", true), ("1.2.3", "1.2.4", false), ("", "1.2.3", true), ("~1.2", "1.2.9", true), ("~1.2", "1.3.0", false)] {
        assert_eq!(allows(wanted, have), fits, "{wanted} {have}");
    }
}
