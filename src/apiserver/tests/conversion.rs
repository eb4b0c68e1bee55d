//! Versions of custom resources: what is stored in one is shown in the other, with a webhook and without.

use serde_json::{Value, json};

use super::basics::Bench;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/e.io/v1/namespaces/default/boxes";
const V2: &str = "/apis/e.io/v2/namespaces/default/boxes";

/// The webhook of these tests: `spec.size` of v1 is text, `spec.amount` of v2 a number. A box called stuck cannot be converted.
pub(super) fn answer(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap();
    if objects.iter().any(|o| o["metadata"]["name"] == "stuck") {
        let result = json!({"status": "Failed", "message": "it is stuck"});
        return json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": {"uid": request["uid"], "result": result}});
    }
    let converted: Vec<Value> = objects
        .iter()
        .map(|object| {
            assert_ne!(object["apiVersion"], wanted, "only what is in another version is asked for");
            let mut new = object.clone();
            new["apiVersion"] = json!(wanted);
            new["spec"] = if wanted == "e.io/v2" {
                json!({"amount": object["spec"]["size"].as_str().unwrap_or("0").parse::<i64>().unwrap(), "unheard": true})
            } else {
                json!({"size": object["spec"]["amount"].as_i64().unwrap_or(0).to_string()})
            };
            new["metadata"]["annotations"]["from"] = object["apiVersion"].clone();
            new["metadata"]["generation"] = json!(99);
            new
        })
        .collect();
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted}})
}

fn definition(conversion: Value, storage: &str) -> Value {
    let version = |name: &str, field: &str, kind: &str, more: Value| {
        let mut properties = json!({field: {"type": kind}});
        if let (Some(all), Some(more)) = (properties.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        json!({"name": name, "served": true, "storage": name == storage, "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "subresources": {"scale": {"specReplicasPath": format!(".spec.{field}"), "statusReplicasPath": ".status.n"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boxes.e.io"},
        "spec": {"group": "e.io", "scope": "Namespaced", "names": {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"}, "conversion": conversion,
            "versions": [version("v1", "size", "string", json!({})), version("v2", "amount", "integer", json!({"color": {"type": "string"}}))]},
    })
}

async fn webhook() -> Value {
    let (port, ca) = super::webhooks::serve().await;
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v3", "v1"], "clientConfig": {"url": format!("https://127.0.0.1:{port}/convert"), "caBundle": ca}}})
}

fn one(name: &str, size: &str) -> Value {
    json!({"apiVersion": "e.io/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"size": size}})
}

/// The next events of a watch.
async fn events(bench: &Bench, path: &str, many: usize) -> Vec<Value> {
    bench.watch(path, |told| told.len() >= many).await
}

#[tokio::test]
async fn a_webhook_converts_whatever_is_shown_or_stored() {
    let bench = Bench::new().await;
    let (code, said) = bench.post(CRDS, definition(webhook().await, "v1")).await;
    assert_eq!(code, 201, "{said}");
    let (code, made) = bench.post(V1, one("a", "3")).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"size": "3"})));

    // Read, list and select in the other version.
    let (code, a) = bench.get(&format!("{V2}/a")).await;
    assert_eq!((code, &a["apiVersion"], &a["spec"]), (200, &json!("e.io/v2"), &json!({"amount": 3})));
    assert_eq!((&a["metadata"]["annotations"], &a["metadata"]["generation"]), (&json!({"from": "e.io/v1"}), &json!(1)), "no other metadata is the webhook's");
    let (code, b) = bench.post(V2, json!({"apiVersion": "e.io/v2", "kind": "Box", "metadata": {"name": "b"}, "spec": {"amount": 5}})).await;
    assert_eq!((code, &b["spec"]["amount"]), (201, &json!(5)));
    let (_, b1) = bench.get(&format!("{V1}/b")).await;
    assert_eq!(b1["spec"], json!({"size": "5"}), "stored in the version of the store");
    let (_, list) = bench.get(&format!("{V2}?fieldSelector=spec.amount%3D5")).await;
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["metadata"]["name"]), (1, &json!("b")), "{list}");
    let (_, list) = bench.get(V2).await;
    assert_eq!((&list["apiVersion"], &list["items"][0]["spec"]["amount"], &list["items"][1]["spec"]["amount"]), (&json!("e.io/v2"), &json!(3), &json!(5)));
    let (_, scale) = bench.get(&format!("{V2}/b/scale")).await;
    assert_eq!(scale["spec"]["replicas"], 5, "{scale}");

    // Change in the other version.
    let (code, a) = bench.merge(&format!("{V2}/a"), json!({"spec": {"amount": 4}})).await;
    assert_eq!((code, &a["spec"]["amount"]), (200, &json!(4)), "{a}");
    assert_eq!(bench.get(&format!("{V1}/a")).await.1["spec"], json!({"size": "4"}));
    let revision = a["metadata"]["resourceVersion"].clone();
    let (_, same) = bench.merge(&format!("{V2}/a"), json!({"spec": {"amount": 4}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], revision, "nothing changed");

    // Watch, from what there is and from a revision; a selection follows the converted fields.
    let told = events(&bench, &format!("{V2}?watch=true"), 2).await;
    assert_eq!((&told[0]["type"], &told[0]["object"]["spec"]["amount"], &told[1]["object"]["spec"]["amount"]), (&json!("ADDED"), &json!(4), &json!(5)));
    bench.merge(&format!("{V1}/a"), json!({"spec": {"size": "6"}})).await;
    bench.merge(&format!("{V1}/a"), json!({"spec": {"size": "7"}})).await;
    let from = revision.as_str().unwrap();
    let told = events(&bench, &format!("{V2}?watch=true&resourceVersion={from}&fieldSelector=spec.amount%3D6"), 2).await;
    let short: Vec<_> = told.iter().map(|e| (e["type"].as_str().unwrap(), e["object"]["spec"]["amount"].as_i64().unwrap())).collect();
    assert_eq!(short, [("ADDED", 6), ("DELETED", 6)]);

    // What the webhook refuses is told in its words.
    let (code, _) = bench.post(V1, one("stuck", "1")).await;
    assert_eq!(code, 201, "its version needs no conversion");
    let why = |root: &str, revision: &str| format!("StorageError: corrupt object, Code: 7, Key: {root}/e.io/boxes/default/stuck, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: conversion webhook for e.io/v1, Kind=Box failed: it is stuck");
    let (_, stuck) = bench.get(&format!("{V1}/stuck")).await;
    let at = stuck["metadata"]["resourceVersion"].as_str().unwrap();
    let (code, said) = bench.get(&format!("{V2}/stuck")).await;
    assert_eq!((code, said["message"].as_str(), &said["reason"]), (500, Some(format!("Internal error occurred: {}", why("", at)).as_str()), &json!("InternalError")));
    let (code, said) = bench.get(V2).await;
    assert_eq!((code, said["message"].as_str(), &said["reason"]), (500, Some(format!("failed to read one or more boxes.e.io from the storage: {}", why("/registry", at)).as_str()), &json!("StorageReadError")));
    let told = events(&bench, &format!("{V2}?watch=true"), 1).await;
    assert_eq!((&told[0]["type"], &told[0]["object"]["code"]), (&json!("ERROR"), &json!(500)));
    let (code, _) = bench.delete(&format!("{V2}/stuck")).await;
    assert_eq!(code, 500, "what cannot be shown is not removed");
    assert_eq!(bench.delete(&format!("{V1}/stuck")).await.0, 200);
    assert_eq!(bench.delete(&format!("{V2}/a")).await.0, 200);
    assert_eq!(bench.get(&format!("{V1}/a")).await.0, 404);

    // A webhook that is not there.
    let gone = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://127.0.0.1:1/convert"}}}}});
    assert_eq!(bench.merge(&format!("{CRDS}/boxes.e.io"), gone).await.0, 200);
    let (code, said) = bench.get(&format!("{V2}/b")).await;
    let message = "conversion webhook for e.io/v1, Kind=Box failed: Post \"https://127.0.0.1:1/convert?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert!(code == 500 && said["message"].as_str().unwrap().ends_with(message), "{said}");
    let (code, said) = bench.post(V2, json!({"apiVersion": "e.io/v2", "kind": "Box", "metadata": {"name": "c"}, "spec": {"amount": 5}})).await;
    assert_eq!((code, said["message"].as_str().unwrap(), said.get("reason")), (500, message.replace("e.io/v1", "e.io/v2").as_str(), None));
}

#[tokio::test]
async fn the_stored_version_moves_with_the_next_write() {
    let bench = Bench::new().await;
    bench.post(CRDS, definition(json!({"strategy": "None"}), "v1")).await;
    bench.post(V1, one("a", "3")).await;
    let moved = definition(json!({"strategy": "None"}), "v2");
    let (code, said) = bench.merge(&format!("{CRDS}/boxes.e.io"), json!({"spec": moved["spec"]})).await;
    assert_eq!((code, &said["status"]["storedVersions"]), (200, &json!(["v1", "v2"])), "{said}");
    // Shown in the version that was asked for, whatever it is stored in.
    for (path, version) in [(V1, "e.io/v1"), (V2, "e.io/v2")] {
        let (_, a) = bench.get(&format!("{path}/a")).await;
        let (_, list) = bench.get(path).await;
        let told = events(&bench, &format!("{path}?watch=true"), 1).await;
        for shown in [&a, &list["items"][0], &told[0]["object"]] {
            assert_eq!(shown["apiVersion"], version, "{shown}");
        }
    }
    let stored = || bench.0.core().read_native("e.io/boxes", "default/a").unwrap();
    assert_eq!(stored()["apiVersion"], "e.io/v1");
    let (_, a) = bench.get(&format!("{V1}/a")).await;
    let (code, after) = bench.put(&format!("{V1}/a"), a.clone()).await;
    assert_eq!((code, stored()["apiVersion"].as_str()), (200, Some("e.io/v2")), "a write that changes nothing else moves it");
    assert_ne!(after["metadata"]["resourceVersion"], a["metadata"]["resourceVersion"]);
    let (_, again) = bench.put(&format!("{V1}/a"), after.clone()).await;
    assert_eq!(again["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
}
