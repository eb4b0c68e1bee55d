//! The hub in its parent's API server: which paths it answers, and what discovery says of them.

use apiserver::auth::Identity;
use apiserver::body::Body;
use apiserver::mount::{Mount, MountedGroup};
use apiserver::path::Info;
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::Hub;

impl Mount for Hub {
    fn prefixes(&self) -> Vec<String> {
        vec!["/apis/proxies.clusternet.io".to_owned(), "/apis/shadow".to_owned()]
    }

    fn groups(&self) -> Vec<MountedGroup> {
        vec![
            MountedGroup {
                group: "proxies.clusternet.io".to_owned(),
                version: "v1alpha1".to_owned(),
                resources: crate::proxy::resources(),
                stale: false,
            },
            MountedGroup {
                group: "shadow".to_owned(),
                version: "v1alpha1".to_owned(),
                resources: self.shadow.resources().snapshot().to_vec(),
                stale: false,
            },
        ]
    }

    fn call(&self, who: Identity, info: Info, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let hub = self.clone();
        Box::pin(async move {
            if request.uri().path().starts_with(crate::shadow::PREFIX) {
                if empties_a_namespace(&who, &info) {
                    let none = serde_json::json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": []});
                    return crate::reply::json_body(http::StatusCode::OK, &none);
                }
                hub.shadow.handle(info, request).await
            } else {
                hub.proxy.handle(&who, request).await
            }
        })
    }
}

/// Whether this is Kubernetes' controller that empties deleted namespaces. Templates outlive the namespace of their name in the
/// parent, where it need not even exist: seeing them, the controller would wait for them for ever.
fn empties_a_namespace(who: &Identity, info: &Info) -> bool {
    const CONTROLLERS: [&str; 2] = ["system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"];
    info.verb == "list" && !info.namespace.is_empty() && CONTROLLERS.contains(&who.user.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_do_not_hold_up_a_namespace() {
        let who = |user: &str| Identity { user: user.to_owned(), ..Identity::default() };
        let asked = |path: &str| apiserver::path::parse(&http::Method::GET, path, false);
        let of_namespace = asked("/apis/shadow/v1alpha1/namespaces/a/configmaps");
        assert!(empties_a_namespace(&who("system:serviceaccount:kube-system:namespace-controller"), &of_namespace));
        assert!(!empties_a_namespace(&who("ann"), &of_namespace));
        assert!(!empties_a_namespace(&who("system:kube-controller-manager"), &asked("/apis/shadow/v1alpha1/configmaps")));
    }
}
