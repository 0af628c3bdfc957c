//! `rack power` and `rack cost`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack power rack.toml --duration 60s             by the sensors that the plan names
  sprat rack power rack.toml --operations 1200000       and joules for a million of operations
  sprat rack power rack.toml --load load.json           the same, of a `sprat rack load --json`
  sprat rack power rack.toml --every 5s --duration 8h --html power.html
  sprat rack power --here                               this machine's own sensors

Sensors are told in the plan, in order; those of the first one's kind count, others are told beside them:
  [[power.sensors]]            of each server; {name}, {address}, {chassis}, {slot} and {user} are put in
  kind = \"redfish\"             rapl, hwmon, ipmi, redfish, shelly, tasmota, command
  url = \"https://bmc-{name}\"
  login = \"/etc/sprat/bmc\"     a file with USER:PASSWORD, for nobody else to read
docs/power.md has all of them. [[power.chassis]] is the same for what a chassis takes as a whole.

Exit code 3: no sensor told anything; 6: some did not, or not all of the time.")]
pub(crate) struct RackPowerArgs {
    /// A file, or a rack that comes with the program.
    #[arg(required_unless_present = "here", conflicts_with = "here")]
    pub(crate) rack: Option<String>,

    /// This machine's own sensors: RAPL, hwmon, and its controller over IPMI.
    #[arg(long)]
    pub(crate) here: bool,

    /// With --here: of the board's sensors those that count. Once for each.
    #[arg(long = "channel", value_name = "NAME", requires = "here")]
    pub(crate) channels: Vec<String>,

    /// With --here: how many instances share this machine.
    #[arg(long, value_name = "COUNT", requires = "here", default_value_t = 0)]
    pub(crate) instances: usize,

    /// With --here: where sysfs is.
    #[arg(long, value_name = "FOLDER", requires = "here", default_value = "/sys")]
    pub(crate) sysfs: PathBuf,

    /// Time from reading to reading, 50 ms at least.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sprat_units::duration)]
    pub(crate) every: Duration,

    /// How long in all, such as 90s, 10m or 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sprat_units::duration)]
    pub(crate) duration: Duration,

    /// How many operations were done meanwhile.
    #[arg(long, value_name = "COUNT")]
    pub(crate) operations: Option<u64>,

    /// What `sprat rack load --json` told of a load meanwhile.
    #[arg(long, value_name = "FILE", conflicts_with = "operations")]
    pub(crate) load: Option<PathBuf>,

    /// Draw power over time into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON, all readings with it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack cost                                       the published example: mini servers beside x86
  sprat rack cost --kwh 0.25 --pue 1.6 --years 4 --carbon 350
  sprat rack cost --option mini:72:2:1900 --option x86:1350:4:9000 --instances 96
  sprat rack cost rack.toml --measured power.json --html cost.html

A server is told as NAME:WATTS:INSTANCES or NAME:WATTS:INSTANCES:PRICE, or in the plan:
  [power.cost]
  currency = \"EUR\"
  kwh = 0.25                  # price of a kWh
  pue = 1.3                   # what the building takes for each watt of servers
  years = 5
  carbon = 350                # g of CO2 for each kWh; not counted unless told
  instances = 12
  options = [{ name = \"mini\", power = \"72W\", instances = 2, price = 1900 }]

A plan's own servers, at `server.power`, come first unless options are told. All that goes into the sums is printed.
What is not told is not counted: prices of 0, repairs, room, people, the network.")]
pub(crate) struct RackCostArgs {
    /// A file, or a rack that comes with the program.
    pub(crate) rack: Option<String>,

    /// A server to hold beside others, in place of the plan's. Once for each.
    #[arg(long = "option", value_name = "SERVER")]
    pub(crate) options: Vec<String>,

    /// What `sprat rack power --json` told: the plan's servers at the power that was measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) measured: Option<PathBuf>,

    /// With --measured: what one of these servers costs to buy.
    #[arg(long, value_name = "PRICE", requires = "measured", default_value_t = 0.0)]
    pub(crate) price: f64,

    /// Instances that there are to be.
    #[arg(long, value_name = "COUNT")]
    pub(crate) instances: Option<u32>,

    /// Price of a kilowatt hour.
    #[arg(long, value_name = "PRICE")]
    pub(crate) kwh: Option<f64>,

    /// What the building takes for each watt that servers take.
    #[arg(long, value_name = "RATIO")]
    pub(crate) pue: Option<f64>,

    /// For how long servers are used, years.
    #[arg(long, value_name = "YEARS")]
    pub(crate) years: Option<f64>,

    /// Grams of CO2 for each kilowatt hour.
    #[arg(long, value_name = "GRAMS")]
    pub(crate) carbon: Option<f64>,

    /// What prices are in.
    #[arg(long, value_name = "NAME")]
    pub(crate) currency: Option<String>,

    /// Draw it into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
