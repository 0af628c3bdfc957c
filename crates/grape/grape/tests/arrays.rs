//! Tests arrays in NumPy's files.
#![allow(missing_docs, reason = "a test is no library")]

use sprat_grape::{Array, Error, Output, write_outputs};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a file as NumPy does, with this header and these bytes.
fn npy(folder: &Path, head: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join("a.npy");
    let mut head = head.to_owned();
    head += &" ".repeat(127 - 10 - head.len());
    head.push('\n');
    let len = u16::try_from(head.len()).expect("short").to_le_bytes();
    fs::write(&path, [b"\x93NUMPY\x01\x00", &len[..], head.as_bytes(), bytes].concat())
        .expect("written");
    path
}

fn head(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}")
}

fn rows(array: &Array) -> Vec<Vec<f64>> {
    let columns = array.columns();
    (0..array.rows()).map(|row| columns.iter().map(|column| column.get(row)).collect()).collect()
}

#[test]
fn arrays_of_both_orders_and_types_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let f64s: Vec<u8> = (0..6).flat_map(|number| f64::from(number).to_le_bytes()).collect();
    let f32s: Vec<u8> = (0..6_u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    let by_row = vec![vec![0.0, 1.0, 2.0], vec![3.0, 4.0, 5.0]];
    let by_column = vec![vec![0.0, 2.0, 4.0], vec![1.0, 3.0, 5.0]];
    let read = |descr, fortran, shape, bytes: &[u8]| {
        rows(
            &Array::read(&npy(folder.path(), &head(descr, fortran, shape), bytes))
                .expect("an array"),
        )
    };
    assert_eq!(read("'<f8'", "False", "(2, 3)", &f64s), by_row);
    assert_eq!(read("'<f4'", "False", "(2, 3)", &f32s), by_row);
    assert_eq!(read("'<f8'", "True", "(2, 3)", &f64s), by_column);
    let turned = |bytes: &[u8], size| {
        bytes.chunks(size).flat_map(|one| one.iter().rev().copied()).collect::<Vec<u8>>()
    };
    assert_eq!(read("'>f8'", "False", "(2, 3)", &turned(&f64s, 8)), by_row);
    assert_eq!(read("'>f4'", "True", "(2, 3)", &turned(&f32s, 4)), by_column);
    assert_eq!(read("'<f4'", "False", "(6,)", &f32s).concat(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(read("'<f8'", "False", "(0, 3)", &[]), Vec::<Vec<f64>>::new());
}

#[test]
fn files_without_a_usable_array_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = |head: &str, bytes: &[u8]| match Array::read(&npy(folder.path(), head, bytes)) {
        Err(error @ Error::Array { .. }) => error.to_string(),
        other => panic!("{head}: {other:?}"),
    };
    assert!(error(&head("'<f8'", "False", "(2, 3)"), &[0; 40]).contains("ends too early"));
    assert!(error(&head("'<i4'", "False", "(2,)"), &[0; 8]).contains("its type is '<i4'"));
    for (descr, size) in
        [("<i8", 8), ("<u2", 2), ("|b1", 1), ("<c8", 8), ("<U4", 16), ("<M8[ns]", 8), ("<f16", 16)]
    {
        let said = error(&head(&format!("'{descr}'"), "False", "(1,)"), &vec![0; size]);
        assert!(said.contains("float32 or float64"), "{descr}: {said}");
    }
    assert!(
        error(&head("[('x', '<f8')]", "False", "(1,)"), &[0; 8]).contains("float32 or float64")
    );
    assert!(error(&head("'<f2'", "False", "(2,)"), &[0; 4]).contains("2 bytes"));
    assert!(error(&head("'<f8'", "False", "(1, 1, 1)"), &[0; 8]).contains("3 dimensions"));
    assert!(
        error(&head("'<f8'", "False", "(4294967296, 4294967296)"), &[]).contains("are more than")
    );
    assert!(error("nonsense", &[]).contains("not a NumPy array"));
    let nowhere = Array::read(&folder.path().join("none.npy"));
    assert!(matches!(nowhere, Err(Error::File { .. })), "{nowhere:?}");
}

#[test]
fn results_are_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r.npy");
    let outputs = [Output::F32(vec![1.5, 2.5]), Output::Bool(vec![true, false])];
    write_outputs(&path, &outputs).expect("written");
    assert_eq!(rows(&Array::read(&path).expect("read")), [[1.5, 1.0], [2.5, 0.0]]);
    write_outputs(&path, &[Output::F64(vec![0.1]), Output::Index(vec![-1])]).expect("written");
    assert_eq!(rows(&Array::read(&path).expect("read")), [[0.1, -1.0]]);
}
