//! Access rules: the tables that each client of a node may use.

use sprat_rpc::Requester;
use sprat_wire::certificate::{Certificate, Rights, Role};
use std::collections::HashMap;

/// A client that has proven its identity.
struct AdmittedClient {
    certificate: Certificate,
    /// The table that the client used last, and the client's rights to it.
    last: Option<(u32, Option<Rights>)>,
}

/// The admitted clients, by the numbers that their requests carry, and the names of the tables. A
/// client's certificate grants rights by table name; admins, servers, and peers of a cluster
/// without identities may do everything.
#[derive(Default)]
pub(crate) struct AccessRules {
    /// The admitted clients, at most as many as an endpoint has channels; `None` for the numbers of
    /// admins and servers.
    clients: Vec<Option<Box<AdmittedClient>>>,
    names: HashMap<u32, String>,
}

impl AccessRules {
    /// Records a peer whose certificate was verified.
    pub(crate) fn admit(&mut self, peer: Requester, certificate: &Certificate) {
        let number = peer.number();
        if self.clients.len() <= number {
            self.clients.resize_with(number + 1, || None);
        }
        // Only clients have rights to look up.
        let client = || Box::new(AdmittedClient { certificate: certificate.clone(), last: None });
        self.clients[number] = (certificate.role == Role::Client).then(client);
    }

    /// Sets the names of the tables of which this server has tablets.
    pub(crate) fn set_table_names(&mut self, names: Vec<(u32, String)>) {
        self.names = names.into_iter().collect();
        self.clients.iter_mut().flatten().for_each(|client| client.last = None);
    }

    /// Returns the peer's rights to the table with that name; `None` for none.
    pub(crate) fn rights_by_name(&self, peer: Requester, name: &str) -> Option<Rights> {
        match peer.role() {
            Some(Role::Client) => {
                self.clients.get(peer.number())?.as_ref()?.certificate.rights(name)
            }
            None | Some(Role::Admin | Role::Server) => Some(Rights::Write),
        }
    }

    /// Returns the peer's rights to a table of this server; `None` for none.
    #[inline]
    pub(crate) fn rights(&mut self, peer: Requester, table: u32) -> Option<Rights> {
        if peer.role() != Some(Role::Client) {
            return Some(Rights::Write);
        }
        let client = self.clients.get_mut(peer.number())?.as_mut()?;
        if let Some((last, rights)) = client.last
            && last == table
        {
            return rights;
        }
        // If a table has no name on this server, only a pattern that matches every name allows it.
        let name = self.names.get(&table).map_or("", String::as_str);
        let rights = client.certificate.rights(name);
        client.last = Some((table, rights));
        rights
    }
}
