//! Ironic's configuration file.

use std::path::Path;

use super::Release;

/// How an Ironic is set up. The default answers fast and lets everybody in.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which release.
    pub release: Release,
    /// The older release, such as `21.2`, that it keeps speaking like: what an operator pins during an upgrade.
    pub speaks_like: Option<&'static str>,
    /// Name and password that every request must carry.
    pub login: Option<(String, String)>,
    /// Serve HTTPS with a certificate of the bench's own authority.
    pub tls: bool,
    /// Seconds that each call to a fake driver takes, or a range like `2,8`. A power change is two calls.
    pub fake_delay: String,
    /// Seconds between two looks at the power state of all nodes; 0 for none. A look at a Redfish node takes most of a
    /// second of a processor, so with the nodes of many tests it would never come to an end.
    pub power_sync: u32,
    /// How often Ironic tries to connect to a BMC, a second apart.
    pub redfish_attempts: u32,
    /// Seconds until a hard power change has failed.
    pub power_timeout: u32,
    /// Seconds until a soft power-off has failed, unless the request says otherwise.
    pub soft_timeout: u32,
    /// The driver of the nodes that are made for unknown machines.
    pub discovery_driver: String,
    /// The most objects that it puts on a page, if not a thousand.
    pub page: Option<u32>,
    /// The HTTP proxy to BMCs that have addresses of their own.
    pub bmc_proxy: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            release: Release::Current,
            speaks_like: None,
            login: None,
            tls: false,
            fake_delay: "0".to_owned(),
            power_sync: 0,
            redfish_attempts: 2,
            power_timeout: 30,
            soft_timeout: 20,
            discovery_driver: "fake-hardware".to_owned(),
            page: None,
            bmc_proxy: None,
        }
    }
}

pub(super) fn scheme(options: &Options) -> &'static str {
    if options.tls { "https" } else { "http" }
}

pub(super) fn settings(options: &Options, dir: &Path, port: u16) -> String {
    let dir = dir.display();
    let auth = if options.login.is_some() { "http_basic" } else { "noauth" };
    let endpoint = format!("{}://127.0.0.1:{port}", scheme(options));
    // Before inspection by agents was part of Ironic, there was nothing to look inside machines with.
    let (inspect, default_inspect) = match options.release {
        Release::Oldest => ("no-inspect,fake,redfish", "no-inspect"),
        Release::Current | Release::FirstWithDiscovery => {
            ("agent,no-inspect,fake,redfish", "agent")
        }
    };
    let pin = match options.speaks_like {
        Some(release) => format!("pin_release_version = {release}\n"),
        None => String::new(),
    };
    let page = options.page.map_or_else(String::new, |page| format!("max_limit = {page}\n"));
    // Where the certificate is named has moved: old releases read [ssl], new ones [api].
    let tls = if options.tls {
        format!("cert_file = {dir}/server.crt\nkey_file = {dir}/server.key\n")
    } else {
        String::new()
    };
    format!(
        "[DEFAULT]
auth_strategy = {auth}
http_basic_auth_user_file = {dir}/users
rpc_transport = none
host = bench
my_ip = 127.0.0.1
use_stderr = true
state_path = {dir}
tempdir = {dir}/tmp
enabled_hardware_types = fake-hardware,redfish,manual-management
enabled_bios_interfaces = no-bios,redfish
enabled_boot_interfaces = fake,ipxe,redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = fake,direct
enabled_firmware_interfaces = no-firmware,fake,redfish
enabled_inspect_interfaces = {inspect}
default_inspect_interface = {default_inspect}
enabled_management_interfaces = fake,noop,redfish
enabled_network_interfaces = noop
default_network_interface = noop
enabled_power_interfaces = fake,redfish,agent
enabled_raid_interfaces = no-raid,redfish,agent
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor,redfish
{pin}
[api]
host_ip = 127.0.0.1
port = {port}
api_workers = 1
public_endpoint = {endpoint}
enable_ssl_api = {tls_on}
{page}{tls}
[ssl]
{tls}
[service_catalog]
endpoint_override = {endpoint}

[database]
connection = sqlite:///{dir}/ironic.sqlite
sqlite_synchronous = false

[conductor]
automated_clean = false
power_state_change_timeout = {power_timeout}
soft_power_off_timeout = {soft_timeout}
sync_power_state_interval = {power_sync}
workers_pool_size = 100

[redfish]
connection_attempts = {redfish_attempts}
connection_retry_interval = 1

[fake]
power_delay = {fake_delay}

[inspector]
require_managed_boot = false
power_off = false
hooks = $default_hooks
add_ports = all
keep_ports = present

[inventory]
data_backend = database

[auto_discovery]
enabled = true
driver = {discovery_driver}

[dhcp]
dhcp_provider = none

[deploy]
http_url = http://127.0.0.1:1
http_root = {dir}/http

[pxe]
tftp_root = {dir}/tftp
images_path = {dir}/images
instance_master_path =
tftp_master_path =

[oslo_concurrency]
lock_path = {dir}/lock

[oslo_messaging_notifications]
driver = noop
",
        tls_on = options.tls,
        power_timeout = options.power_timeout,
        soft_timeout = options.soft_timeout,
        power_sync = options.power_sync,
        redfish_attempts = options.redfish_attempts,
        fake_delay = options.fake_delay,
        discovery_driver = options.discovery_driver,
    )
}

pub(super) fn prepare(dir: &Path, options: &Options, port: u16) -> anyhow::Result<()> {
    for folder in ["tmp", "http", "tftp", "images", "lock"] {
        std::fs::create_dir_all(dir.join(folder))?;
    }
    std::fs::write(dir.join("ironic.conf"), settings(options, dir, port))?;
    Ok(())
}
