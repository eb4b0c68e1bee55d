//! Helm's rules around templates: loading, dependencies, values, schemas, sorting, output.

pub mod archive;
pub mod bundle;
pub mod capabilities;
pub mod coalesce;
pub mod deps;
pub mod heads;
pub mod ignore;
pub mod load;
pub mod manifests;
pub mod metadata;
pub mod picture;
pub mod record;
pub mod render;
mod formats;
mod metaschema;
pub mod schema;
pub mod strvals;
