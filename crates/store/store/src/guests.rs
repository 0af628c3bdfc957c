//! Members of the cluster that ask a node, and which tables they may use.

use sprat_rpc::Requester;
use sprat_wire::certificate::{Certificate, Rights, Role};
use std::collections::HashMap;

/// A client, as it has proven to be.
struct Guest {
    certificate: Certificate,
    /// The table that it used last, and what it may do with it.
    last: Option<(u32, Option<Rights>)>,
}

/// Who has been admitted, by the numbers that their requests come with; and what tables are called.
#[derive(Default)]
pub(crate) struct Guests {
    /// As many as an endpoint has channels, at most.
    all: Vec<Option<Box<Guest>>>,
    names: HashMap<u32, String>,
}

impl Guests {
    /// A member has proven who it is.
    pub(crate) fn admit(&mut self, who: Requester, certificate: &Certificate) {
        let number = who.number();
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        // Only of clients is there anything to look up.
        let guest = || Box::new(Guest { certificate: certificate.clone(), last: None });
        self.all[number] = (certificate.role == Role::Client).then(guest);
    }

    /// These are the tables here.
    pub(crate) fn name_tables(&mut self, names: Vec<(u32, String)>) {
        self.names = names.into_iter().collect();
        self.all.iter_mut().flatten().for_each(|guest| guest.last = None);
    }

    /// What somebody may do with the table of that name.
    pub(crate) fn rights_by_name(&self, who: Requester, name: &str) -> Option<Rights> {
        match who.role() {
            Some(Role::Client) => self.all.get(who.number())?.as_ref()?.certificate.rights(name),
            None | Some(Role::Admin | Role::Server) => Some(Rights::Write),
        }
    }

    /// What somebody may do with a table that is here.
    #[inline]
    pub(crate) fn rights(&mut self, who: Requester, table: u32) -> Option<Rights> {
        if who.role() != Some(Role::Client) {
            return Some(Rights::Write);
        }
        let guest = self.all.get_mut(who.number())?.as_mut()?;
        if let Some((last, rights)) = guest.last
            && last == table
        {
            return rights;
        }
        // One that has no name here can only be among those that a pattern for all names allows.
        let name = self.names.get(&table).map_or("", String::as_str);
        let rights = guest.certificate.rights(name);
        guest.last = Some((table, rights));
        rights
    }
}
