//! Requests for objects of any kind, as `serde_json::Value`: get, list, create, patch, delete, and raw calls.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::resource::{Resource, escaped};

/// A client for objects whose kind is known only at run time.
#[derive(Clone)]
pub struct Dynamic {
    client: Client,
}

/// What must still be true for a delete to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// The object must still have this uid.
    pub uid: Option<String>,
    /// The object must still be at this resource version.
    pub resource_version: Option<String>,
}

/// How dependents of a deleted object go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector removes dependents afterwards.
    Background,
    /// Dependents first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    fn text(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// A server-side apply call's settings.
#[derive(Clone, Copy, Debug)]
pub struct ApplyAs<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// Take over fields that other managers own.
    pub force: bool,
    /// Only ask what would happen.
    pub dry_run: bool,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The objects; `apiVersion` and `kind` are filled in where the list left them out.
    pub items: Vec<Value>,
    /// Version of the list: watch from here.
    pub resource_version: String,
    /// Token for the next page; empty on the last.
    pub next: String,
}

impl Dynamic {
    /// Wraps a client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The wrapped client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one object.
    pub async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, kube::Error> {
        self.call("GET", &resource.path(namespace, name), None, None).await
    }

    /// Reads one object; absent is `None`.
    pub async fn get_opt(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Value>, kube::Error> {
        match self.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists one page. `limit` 0 means no limit.
    pub async fn list_page(
        &self,
        resource: &Resource,
        namespace: &str,
        labels: Option<&str>,
        limit: u32,
        next: &str,
    ) -> Result<Page, kube::Error> {
        let mut path = resource.collection(namespace);
        let mut sign = '?';
        let mut add = |key: &str, value: &str| {
            path.push(sign);
            sign = '&';
            path.push_str(key);
            path.push('=');
            path.push_str(&escaped(value));
        };
        if let Some(labels) = labels {
            add("labelSelector", labels);
        }
        if limit > 0 {
            add("limit", &limit.to_string());
        }
        if !next.is_empty() {
            add("continue", next);
        }
        let mut list = self.call("GET", &path, None, None).await?;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let resource_version = text(&list["metadata"]["resourceVersion"]);
        let next = text(&list["metadata"]["continue"]);
        let mut items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            if let Value::Object(map) = item {
                map.entry("apiVersion").or_insert_with(|| Value::String(resource.api_version()));
                map.entry("kind").or_insert_with(|| Value::String(resource.kind.clone()));
            }
        }
        Ok(Page { items, resource_version, next })
    }

    /// Lists everything, page by page.
    pub async fn list(&self, resource: &Resource, namespace: &str, labels: Option<&str>) -> Result<Page, kube::Error> {
        let mut whole = self.list_page(resource, namespace, labels, 500, "").await?;
        while !whole.next.is_empty() {
            let page = self.list_page(resource, namespace, labels, 500, &whole.next).await?;
            whole.items.extend(page.items);
            whole.resource_version = page.resource_version;
            whole.next = page.next;
        }
        Ok(whole)
    }

    /// Creates an object.
    pub async fn create(&self, resource: &Resource, object: &Value, manager: &str) -> Result<Value, kube::Error> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("{}?fieldManager={}", resource.collection(namespace), escaped(manager));
        self.call("POST", &path, Some("application/json"), Some(object)).await
    }

    /// Server-side applies an object: creates it or changes the fields that it names.
    pub async fn apply(&self, resource: &Resource, object: &Value, how: ApplyAs<'_>) -> Result<Value, kube::Error> {
        let metadata = &object["metadata"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut path = resource.path(&text(&metadata["namespace"]), &text(&metadata["name"]));
        path.push_str("?fieldManager=");
        path.push_str(&escaped(how.manager));
        if how.force {
            path.push_str("&force=true");
        }
        if how.dry_run {
            path.push_str("&dryRun=All");
        }
        self.call("PATCH", &path, Some("application/apply-patch+yaml"), Some(object)).await
    }

    /// JSON merge patch (RFC 7386). `subresource` is empty or, say, `status`.
    pub async fn merge_patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Value, kube::Error> {
        let path = sub_path(resource, namespace, name, subresource, manager);
        self.call("PATCH", &path, Some("application/merge-patch+json"), Some(patch)).await
    }

    /// JSON patch (RFC 6902).
    pub async fn json_patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Value, kube::Error> {
        let path = sub_path(resource, namespace, name, subresource, manager);
        self.call("PATCH", &path, Some("application/json-patch+json"), Some(patch)).await
    }

    /// Deletes an object when the preconditions hold. A `Conflict` means that they do not.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        only_if: &Precondition,
        propagation: Propagation,
    ) -> Result<(), kube::Error> {
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.text(),
        });
        let mut conditions = serde_json::Map::new();
        if let Some(uid) = &only_if.uid {
            conditions.insert("uid".into(), Value::String(uid.clone()));
        }
        if let Some(version) = &only_if.resource_version {
            conditions.insert("resourceVersion".into(), Value::String(version.clone()));
        }
        if !conditions.is_empty() {
            body["preconditions"] = Value::Object(conditions);
        }
        self.call("DELETE", &resource.path(namespace, name), Some("application/json"), Some(&body)).await?;
        Ok(())
    }

    /// Any call that answers JSON.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(content_type) = content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(kube::Error::SerdeError)?,
            None => Vec::new(),
        };
        self.client.request(request.body(body).map_err(kube::Error::HttpError)?).await
    }
}

fn sub_path(resource: &Resource, namespace: &str, name: &str, subresource: &str, manager: &str) -> String {
    let mut path = resource.path(namespace, name);
    if !subresource.is_empty() {
        path.push('/');
        path.push_str(subresource);
    }
    path.push_str("?fieldManager=");
    path.push_str(&escaped(manager));
    path
}
