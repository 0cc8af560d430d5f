//! Every store passes the same suite.

use epitome_store::conformance;

use crate::support::{Place, counting, open_at};

#[test]
fn sqlite_conforms() {
    let place = Place::new();
    let log = place.open();
    conformance::check(&*log);
    drop(log);
    let again = place.open();
    conformance::check(&*again);
    let report = again.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

#[test]
fn two_handles_on_one_file_conform_together() {
    let place = Place::new();
    let one = place.open();
    let other = open_at(&place.path(), counting()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| conformance::check(&*one));
        scope.spawn(|| conformance::check(&*other));
    });
    let report = one.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}
