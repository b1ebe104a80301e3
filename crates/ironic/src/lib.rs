//! Async client of the Ironic API.
//!
//! It speaks to one Ironic, over at most [`CONNECTIONS`] connections, in the newest API version
//! that both sides know. It never decides anything: it sends what it is told, once, and says in
//! one [`Error`] type what came of it. It does not repeat a request that Ironic may have acted
//! upon; whoever asked reads again and decides ([`Error::maybe_done`]).
//!
//! Where the Ironic is, and with which credentials and certificates it is to be spoken to, comes
//! from the environment names and file paths that the Metal3 operator uses ([`Settings`]), so that
//! the same secrets can be mounted into both. Files are watched for rotation.

mod api;
mod client;
mod error;
mod files;
mod inventory;
mod lenient;
mod node;
mod nodes;
mod paging;
mod settings;
mod version;

use controller_kit::check::Check;

pub use client::{CONNECTIONS, Client, Ready};
pub use error::{Class, Error};
pub use inventory::{
    Boot, Cpu, Disk, Firmware, Interface, Inventory, Machine, Memory, PluginData, SystemVendor,
};
pub use node::{Driver, Node, PatchOp, Port, Power, PowerTarget, is_node_id};
pub use nodes::{Calling, Follow, Nodes, Reading};
pub use paging::{Detail, MAX_PAGE, NodeQuery, Pager, PortQuery};
pub use settings::{CALLS, Flags, MOST_CALLS, Settings};
pub use version::Version;

/// What `check` says of the Ironic of these settings: at which it looks, and what it finds or what is wrong.
pub fn checks(settings: Option<Settings>) -> Vec<Check> {
    let check = |settings: Settings| {
        Check::of_others(&format!("Ironic at {}", settings.endpoint), look(settings))
    };
    settings.map(check).into_iter().collect()
}

async fn look(settings: Settings) -> std::result::Result<String, String> {
    let version = match Client::new(settings) {
        Ok(client) => client.check().await,
        Err(error) => Err(error),
    };
    let found = version.map(|version| format!("API {version}, and it takes our credentials"));
    found.map_err(|error| error.to_string())
}

/// What every operation returns.
pub type Result<T> = std::result::Result<T, Error>;
