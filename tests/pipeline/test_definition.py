"""Pipelines as they are written, in Python and YAML, and what is said about mistakes in them."""

from __future__ import annotations

import textwrap

import pytest

from penstock.errors import BadInput
from penstock.pipeline import Pipeline, files, kafka, stream
from penstock.pipeline.definition import Takes
from penstock.pipeline.yaml_form import load_pipeline


def thumbnails():
    pipeline = Pipeline("thumbnails", topics=files("topics"))
    pipeline.topic("images", schema="number bigint, pixels binary")

    @pipeline.function(reads="images", writes="small", parallelism=(1, 15), schema="number bigint")
    def resize(batch):
        return batch

    @pipeline.function(reads="images", writes="stored", parallelism=2, schema="number bigint")
    def store(batch):
        return batch

    @pipeline.function(reads="small", writes="objects", latency_target="1s", schema="what string")
    def recognise(batch):
        return batch

    return pipeline


def test_functions_and_topics_make_the_graph_with_the_outside_topic_as_its_source():
    layout = thumbnails().check()
    assert layout.sources == ("images",)
    assert layout.graph.edges == (("images", "resize"), ("images", "store"), ("resize", "recognise"))
    assert [layout.depth(name) for name in ("resize", "store", "recognise")] == [0, 0, 1]
    scalable = {one.name for one in layout.graph.operators if one.scalable}
    assert scalable == {"resize", "recognise"}


def test_options_are_read_with_their_units():
    functions = thumbnails().functions
    assert (functions["resize"].least, functions["resize"].most) == (1, 15)
    assert functions["recognise"].latency_target == 1.0
    assert functions["resize"].takes is Takes.PANDAS


def test_fan_in_and_several_topics_share_one_edge_each():
    pipeline = Pipeline("joined", topics=files("topics"))
    pipeline.topic("a", schema="x int")
    pipeline.topic("b", schema="x int")
    pipeline.add(len, name="f", reads="a", writes="c", schema="x int")
    pipeline.add(len, name="g", reads="b", writes="c", schema="x int")
    pipeline.add(len, name="h", reads=("c", "a"))
    layout = pipeline.check()
    assert set(layout.graph.edges) == {("a", "f"), ("b", "g"), ("f", "h"), ("g", "h"), ("a", "h")}


def test_topics_may_be_named_as_kafka_names_them():
    pipeline = Pipeline("orders", topics=kafka("host:9092"))
    pipeline.topic("orders.v1", schema="number bigint")
    pipeline.add(len, name="copy", reads="orders.v1", writes="2024.copies", schema="number bigint")
    pipeline.topic("copy.dead", schema="function string, record string, error string")
    pipeline.add(len, name="mend", reads="copy.dead")
    assert pipeline.check().sources == ("orders.v1", "copy.dead")


def broken(**changes):
    def make():
        pipeline = Pipeline("p", topics=changes.pop("topics", files("t")))
        pipeline.topic("a", schema="x int")
        pipeline.add(len, **{"name": "f", "reads": "a", "writes": "b", "schema": "x int", **changes})
        pipeline.check()

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (broken(reads="z"), "function 'f' reads the unknown topic 'z'"),
        (broken(reads=()), "function 'f' reads no topic"),
        (broken(writes="f"), "'f' is the name of a function and of a topic"),
        (broken(schema=None), "topic 'b' has no schema; give schema= of function 'f'"),
        (broken(topics=None), "topic 'a' has no place"),
        (broken(name="7up"), "function: '7up' is not a name"),
        (broken(parallelism=(3, 2)), "function 'f': parallelism (3, 2)"),
        (broken(parallelism=0), "function 'f': parallelism 0"),
        (broken(latency_target="soon"), "function 'f': latency_target: 'soon' is not a duration"),
        (broken(takes="lists"), "function 'f': takes 'lists', not one of pandas, arrow"),
        (broken(order="x"), "function 'f': order needs a key"),
        (broken(state="n int"), "function 'f': a keyed stateful function needs both key and state"),
        (broken(state="n int", key="x", takes="arrow"), "function 'f': takes 'arrow', but with state"),
        (broken(reads=["a", "a"]), "p: function 'f': reads names 'a' twice"),
        (broken(reads=5), "p: function 'f': reads is 5, not a name or a list of names"),
        (broken(writes="../b"), "p: function 'f' writes: '../b' is not a topic's name"),
        (broken(writes="a.dead"), "p: function 'f' writes: 'a.dead' is a name for dead letters"),
        (broken(parallelism=None), "function 'f': parallelism None"),
        (broken(schema=5), "function 'f': schema is 5, not a text"),
        (broken(key=[3]), "function 'f': key is [3], not a name or a list of names"),
        (broken(topics=stream("rate")), "function 'f' writes topic 'b', which is only read"),
        (Pipeline("p").check, "p: the pipeline has no functions"),
        (lambda: kafka("host:1", records_per_batch=0), "records_per_batch is 0"),
    ],
)
def test_a_mistake_names_the_place(make, said):
    with pytest.raises(BadInput) as caught:
        make()
    assert said in str(caught.value)


def test_a_cycle_names_the_functions_on_it():
    pipeline = Pipeline("p", topics=files("t"))
    pipeline.add(len, name="f", reads="b", writes="a", schema="x int")
    pipeline.add(len, name="g", reads="a", writes="b", schema="x int")
    with pytest.raises(BadInput, match=r"cycle: (f → g → f|g → f → g)"):
        pipeline.check()


def test_two_writers_of_a_topic_must_agree_on_its_schema():
    pipeline = Pipeline("p", topics=files("t"))
    pipeline.topic("a", schema="x int")
    pipeline.add(len, name="f", reads="a", writes="b", schema="x int, y int")
    pipeline.add(len, name="g", reads="a", writes="b", schema="x  int")
    with pytest.raises(
        BadInput, match="function 'g' writes 'x  int' to topic 'b', whose schema is 'x int, y"
    ):
        pipeline.check()


YAML = """
    name: thumbnails
    at: {files: topics, files_per_batch: 4}
    topics:
      images: {schema: "number bigint"}
    functions:
      resize: {call: "sizes_of_images:resize", reads: images, writes: small, parallelism: [1, 15],
               schema: "number bigint"}
      recognise: {call: "sizes_of_images:recognise", reads: [small], latency_target: 500ms}
"""


def written(tmp_path, text):
    (tmp_path / "sizes_of_images.py").write_text("resize = recognise = lambda batch: batch\nsize = 3\n")
    file = tmp_path / "thumbnails.yaml"
    file.write_text(textwrap.dedent(text))
    return file


def test_a_yaml_file_says_the_same(tmp_path):
    pipeline = load_pipeline(written(tmp_path, YAML))
    assert pipeline.name == "thumbnails"
    assert pipeline.location == files(str(tmp_path / "topics"), files_per_batch=4)
    assert pipeline.functions["resize"].call(5) == 5
    assert pipeline.functions["recognise"].latency_target == 0.5
    assert pipeline.layout().functions == ("resize", "recognise")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "reads: images",
            "reads: pictures",
            "thumbnails.yaml: thumbnails: function 'resize' reads the unknown",
        ),
        ("[small]", "[smal]", "it is not declared; did you mean 'small'?"),
        ("of_images:resize", "of_images:shrink", "functions.resize.call: module 'sizes_of_images' has no"),
        ("of_images:resize", "of_images:size", "functions.resize.call: module 'sizes_of_images' has no"),
        ("sizes_of_images:resize", "no_such:f", "functions.resize.call: there is no module 'no_such'"),
        ("sizes_of_images:resize", "resize", "functions.resize.call: 'resize' is not of the form module:fun"),
        ("500ms", "now", "functions.recognise: function 'recognise': latency_target"),
        ("files: topics", "tables: topics", "thumbnails.yaml: at: one of files, kafka and stream"),
        ("files_per_batch", "files_a_batch", "thumbnails.yaml: at: unknown option"),
        ("functions:", "function:", "thumbnails.yaml: unknown key 'function'"),
        ("reads: [small], ", "", "functions.recognise: the key reads is missing"),
        ("    name: thumbnails", "    name: [", "thumbnails.yaml line"),
        (
            "      recognise:",
            "      resize:",
            "thumbnails.yaml line 9: resize is given twice",
        ),
        ("files_per_batch: 4", "files_per_batch: few", "thumbnails.yaml: at: files_per_batch is 'few'"),
        ("reads: images", "reads: 5", "functions.resize: thumbnails: function 'resize': reads is 5"),
        ("name: thumbnails", "name: 2024-99-99", "thumbnails.yaml: not valid YAML"),
    ],
)
def test_a_mistake_in_yaml_names_file_and_key(tmp_path, old, new, said):
    assert old in YAML
    with pytest.raises(BadInput) as caught:
        load_pipeline(written(tmp_path, YAML.replace(old, new)))
    assert said in str(caught.value)
    assert str(tmp_path / "thumbnails.yaml") in str(caught.value)


def test_a_cycle_in_yaml_names_the_file(tmp_path):
    text = YAML.replace("reads: images", "reads: done")
    text = text.replace("reads: [small]", "reads: small, writes: done, schema: x int")
    with pytest.raises(BadInput, match=r"thumbnails\.yaml.*cycle"):
        load_pipeline(written(tmp_path, text))


def test_a_query_that_runs_already_joins_the_graph_and_its_topics_need_no_schema():
    pipeline = thumbnails()
    pipeline.existing("archive", object(), reads="objects", writes="archived")
    layout = pipeline.check()
    assert ("recognise", "archive") in layout.graph.edges
    assert not pipeline.functions["archive"].scalable
    with pytest.raises(BadInput, match="'archive' is defined twice"):
        pipeline.existing("archive", object(), reads="objects")
