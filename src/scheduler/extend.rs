//! Extension points that touch the world: what a plugin does before, instead of and after binding, and permission that comes later.
//!
//! A plugin of this name stands in the profile, at the points it declares; its pure half is a [`plan::placement::framework::Plugin`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::bind::BindError;
use crate::brain::{Decided, Written};

/// The longest that permission is waited for.
pub const PERMIT_LONGEST: Duration = Duration::from_secs(15 * 60);

/// What binding came to; `None` when the object said so already.
pub type Bound = Result<Option<Written>, BindError>;

/// The half of a plugin that acts. Every method is one extension point.
pub trait Extension: Send + Sync {
    /// Name of the plugin in the profile.
    fn name(&self) -> &'static str;

    /// PreBind: an error ends the binding; it is tried again after back-off.
    fn pre_bind<'a>(&'a self, _client: &'a Client, _decided: &'a Decided) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Bind: `None` leaves it to the next binder.
    fn bind<'a>(&'a self, _client: &'a Client, _decided: &'a Decided) -> BoxFuture<'a, Option<Bound>> {
        Box::pin(std::future::ready(None))
    }

    /// PostBind: for information, after a binding was written.
    fn post_bind<'a>(&'a self, _client: &'a Client, _decided: &'a Decided) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Takes back what was reserved for a decision that was not bound.
    fn unreserve(&self, _decided: &Decided) {}
}

/// Decisions that wait for permission, by Subscription (`namespace/name`). Cloning shares them.
#[derive(Clone, Default)]
pub struct Permits(Arc<Mutex<BTreeMap<Arc<str>, oneshot::Sender<Result<(), String>>>>>);

impl Permits {
    /// Subscriptions that wait.
    pub fn waiting(&self) -> Vec<Arc<str>> {
        self.0.lock().keys().cloned().collect()
    }

    /// Lets a decision be bound; false when none waits.
    pub fn allow(&self, key: &str) -> bool {
        self.answer(key, Ok(()))
    }

    /// Refuses a decision; it is taken anew after back-off. False when none waits.
    pub fn reject(&self, key: &str, why: &str) -> bool {
        self.answer(key, Err(why.to_owned()))
    }

    fn answer(&self, key: &str, verdict: Result<(), String>) -> bool {
        let waiting = self.0.lock().remove(key);
        waiting.is_some_and(|waiting| waiting.send(verdict).is_ok())
    }

    /// Waits for permission.
    pub(crate) async fn wait(&self, key: &Arc<str>, clock: &dyn engine::Clock) -> Result<(), String> {
        let (tell, told) = oneshot::channel();
        self.0.lock().insert(Arc::clone(key), tell);
        tokio::select! {
            verdict = told => verdict.unwrap_or_else(|_| Err("another decision took its place".to_owned())),
            () = clock.sleep(PERMIT_LONGEST) => {
                self.0.lock().remove(key);
                Err(format!("no permission within {} minutes", PERMIT_LONGEST.as_secs() / 60))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permission_is_given_refused_and_taken_over() {
        let permits = Permits::default();
        let key: Arc<str> = Arc::from("fleet/a");
        let clock = engine::RealClock::shared();
        let (answer, told) = tokio::join!(permits.wait(&key, &*clock), async { permits.allow("fleet/a") });
        assert_eq!((answer, told), (Ok(()), true));
        let (answer, told) = tokio::join!(permits.wait(&key, &*clock), async { permits.reject("fleet/a", "not today") });
        assert_eq!((answer, told), (Err("not today".to_owned()), true));
        // A newer decision about the same Subscription ends the older wait.
        let (older, (newer, told)) = tokio::join!(permits.wait(&key, &*clock), async {
            tokio::join!(permits.wait(&key, &*clock), async { permits.allow("fleet/a") })
        });
        assert!(older.is_err_and(|why| why.contains("another decision")));
        assert_eq!((newer, told, permits.allow("fleet/a")), (Ok(()), true, false));
        assert!(permits.waiting().is_empty());
    }
}
