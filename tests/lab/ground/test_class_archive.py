"""Where the archive of classes lies, and when it is used."""

import os
from pathlib import Path

import pytest

from penstock_lab.ground.class_archive import ClassArchive


@pytest.fixture
def jars(tmp_path):
    directory = tmp_path / "jars"
    directory.mkdir()
    (directory / "slf4j-api-2.0.jar").touch()
    (directory / "spark-core.jar").touch()
    return directory


def test_an_archive_is_used_once_a_process_has_written_it(jars, tmp_path):
    archive = ClassArchive("driver", jars, tmp_path / "cache")
    assert list(archive.configuration.iterdir()) == []
    assert not archive.exists() and archive.options == []
    archive.keep()
    assert not archive.exists(), "the process was killed, and wrote nothing"
    (option,) = archive.training
    Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_text("classes")
    archive.keep()
    (used,) = ClassArchive("driver", jars, tmp_path / "cache").options
    assert Path(used.removeprefix("-XX:SharedArchiveFile=")).read_text() == "classes"


def test_other_jars_have_another_archive(jars, tmp_path):
    before = ClassArchive("driver", jars, tmp_path).training
    (jars / "spark-sql.jar").touch()
    assert ClassArchive("driver", jars, tmp_path).training != before


def test_the_oldest_archives_are_removed(jars, tmp_path):
    files = []
    for number in range(5):
        (jars / f"{number}.jar").touch()
        os.utime(jars, (number, number))
        archive = ClassArchive("driver", jars, tmp_path / "cache")
        written = Path(archive.training[0].removeprefix("-XX:ArchiveClassesAtExit="))
        written.parent.mkdir(exist_ok=True)
        written.touch()
        os.utime(written, (number, number))
        archive.keep()
        files.append(Path(archive.options[0].removeprefix("-XX:SharedArchiveFile=")))
    assert [file.exists() for file in files] == [False, False, True, True, True]


def test_each_kind_of_process_has_its_own(jars, tmp_path):
    assert ClassArchive("driver", jars, tmp_path).training != ClassArchive("worker", jars, tmp_path).training


def test_the_class_path_is_that_of_executors(jars, tmp_path):
    archive = ClassArchive("driver", jars, tmp_path)
    assert archive.class_path == f"{archive.configuration}/:{jars}/slf4j-api-2.0.jar:{jars}/*"
