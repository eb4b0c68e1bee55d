//! What the hub may not try out is stored as it was sent, with a warning; what the parent has against an object still counts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use http_body_util::BodyExt as _;
use serde_json::json;

use super::*;

/// A parent that forbids to create widgets, and says whether the hub's account may create them at all.
fn parent(may_create: bool) -> kube::Client {
    let answer = move |request: Request<kube::client::Body>| async move {
        let path = request.uri().path().to_owned();
        let sent: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let (code, body) = if path.ends_with("/widgets") {
            (403_u16, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "widgets is forbidden", "code": 403}))
        } else if path.ends_with("/selfsubjectaccessreviews") {
            assert_eq!(sent["spec"]["resourceAttributes"], json!({"verb": "create", "group": "example.com", "resource": "widgets", "namespace": "clusternet-reserved"}));
            (201, json!({"status": {"allowed": may_create}}))
        } else {
            (201, sent)
        };
        Ok::<_, std::io::Error>(Response::builder().status(code).body(kube::client::Body::from(body.to_string().into_bytes())).unwrap())
    };
    kube::Client::new(tower::service_fn(answer), "default")
}

fn call(may_create: bool) -> Call {
    let kind = Shadowed {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        scale: false,
        status: false,
        custom: true,
        definition: None,
        subresources: Vec::new(),
    };
    Call {
        shadow: Shadow::new(parent(may_create), "clusternet-reserved"),
        kind: Arc::new(kind),
        info: Info { verb: "create", namespace: "shop".into(), resource: "widgets".into(), ..Info::default() },
        query: Query::parse(None),
        accept: String::new(),
        untried: Arc::default(),
    }
}

#[tokio::test]
async fn what_may_not_be_tried_is_stored_with_a_warning() {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "shop"}, "spec": {"size": 3}}).to_string();
    let (free, bound) = (call(false), call(true));
    let stored = free.create(widget.as_bytes()).await.unwrap_or_else(|error| panic!("{}", error.message));
    let stored: Value = serde_json::from_slice(&stored.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((&stored["spec"], &stored["metadata"]["namespace"]), (&json!({"size": 3}), &json!("shop")), "{stored}");
    assert!(free.warning().unwrap().to_str().unwrap().contains("widgets.example.com"));
    let Err(refused) = bound.create(widget.as_bytes()).await else { panic!("the parent's refusal was lost") };
    assert_eq!((refused.code, bound.warning().is_none()), (StatusCode::FORBIDDEN, true), "{}", refused.message);
}
