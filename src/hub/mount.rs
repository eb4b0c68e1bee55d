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
                hub.shadow.handle(info, request).await
            } else {
                hub.proxy.handle(&who, request).await
            }
        })
    }
}
