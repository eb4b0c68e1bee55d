//! What every kind of ours has in common, and the macro that declares one.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A kind with a fixed group, version and scope, stored as one Kubernetes object.
pub trait Kind: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug {
    /// API group, such as `apps.clusternet.io`.
    const GROUP: &'static str;
    /// API version without the group, such as `v1alpha1`.
    const VERSION: &'static str;
    /// `group/version`.
    const API_VERSION: &'static str;
    /// Kind, such as `Subscription`.
    const KIND: &'static str;
    /// Lower-case plural as in URLs.
    const PLURAL: &'static str;
    /// Whether objects live in a namespace.
    const NAMESPACED: bool;

    /// The object as plain JSON, with `apiVersion` and `kind`.
    fn to_object(&self) -> Value {
        // Serialising our own structs into a Value has no failing case: keys are strings, numbers are finite.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// Reads an object of this kind from plain JSON; `apiVersion` and `kind` are not compared.
    fn from_object(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }
}

/// Declares a kind: struct, (de)serialisation with type meta, `kube::Resource`, `Kind`.
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $kind:ident: $group:literal, $version:literal, $plural:literal, $scope:ident, $namespaced:literal
        { $( $(#[$fdoc:meta])* $field:ident: $ty:ty ),* ; $( $(#[$odoc:meta])* $opt:ident: $oty:ty ),* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $kind {
            /// Standard object metadata.
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$fdoc])* pub $field: $ty, )*
            $( $(#[$odoc])* pub $opt: Option<$oty>, )*
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut out = serializer.serialize_struct(stringify!($kind), 5)?;
                out.serialize_field("apiVersion", <Self as crate::Kind>::API_VERSION)?;
                out.serialize_field("kind", stringify!($kind))?;
                out.serialize_field("metadata", &self.metadata)?;
                $( out.serialize_field(stringify!($field), &self.$field)?; )*
                $( match &self.$opt {
                    Some(value) => out.serialize_field(stringify!($opt), value)?,
                    None => out.skip_field(stringify!($opt))?,
                } )*
                out.end()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;
            fn kind(_: &()) -> std::borrow::Cow<'_, str> { stringify!($kind).into() }
            fn group(_: &()) -> std::borrow::Cow<'_, str> { $group.into() }
            fn version(_: &()) -> std::borrow::Cow<'_, str> { $version.into() }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> { $plural.into() }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta { &self.metadata }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta { &mut self.metadata }
        }

        impl crate::Kind for $kind {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const KIND: &'static str = stringify!($kind);
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = $namespaced;
        }
    };
}

/// Adds `Kind::new(name, spec)` for the kinds that have a spec.
macro_rules! with_spec {
    ($($kind:ident: $spec:ty),* $(,)?) => { $(
        impl $kind {
            /// A new object of this kind with a name and a spec, and no status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut made = Self { spec, ..Self::default() };
                made.metadata.name = Some(name.to_owned());
                made
            }
        }
    )* };
}
