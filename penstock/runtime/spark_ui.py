"""Our tab and metrics in the application's own Spark UI, without a jar: Spark's Java compiler makes them.

Private to Spark; the tab was seen to work on Spark 4.1 and 4.3, the metrics on 4.3. What they show is a text
in the JVM that Python sets, so no callback into Python is needed. Spark puts its filters and its access
control before both.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import Unsupported
from penstock.observe.spark_status import java_context, spark_errors
from penstock.runtime.telemetry.exposition import CONTENT_TYPE

BODY = "body"
COMPILER = "org.codehaus.janino.SimpleCompiler"
TAB_MAKER, SERVLET = "penstock.TabMaker", "penstock.MetricsServlet"
METRICS_ROOT, METRICS_PAGE = "/metrics/penstock", "/prometheus"
"""Beside Spark's own `/metrics/executors/prometheus`."""
# `headerSparkPage` has another number of parameters in some versions: those after the fourth have defaults,
# which Scala keeps in methods of their own.
TAB_SOURCE = """
package penstock;

import jakarta.servlet.http.HttpServletRequest;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.WebUIPage;
import scala.collection.immutable.Seq;

public class TabMaker implements BiFunction {
    public Object apply(Object ui, Object content) {
        try {
            return new Tab((SparkUI) ui, (Map) content);
        } catch (Exception error) {
            throw new IllegalStateException(error.toString());
        }
    }

    public static class Tab extends SparkUITab {
        public Tab(SparkUI ui, Map content) throws Exception {
            super(ui, "penstock");
            attachPage(new Page(this, content));
        }
    }

    public static class Page extends WebUIPage {
        private final SparkUITab tab;
        private final Map content;
        private final Object frames;
        private Method header;

        public Page(SparkUITab tab, Map content) throws Exception {
            super("");
            this.tab = tab;
            this.content = content;
            Class found = Class.forName("org.apache.spark.ui.UIUtils$", true, SparkUI.class.getClassLoader());
            this.frames = found.getField("MODULE$").get(null);
            Method[] methods = found.getMethods();
            for (int i = 0; i < methods.length; i++) {
                if (methods[i].getName().equals("headerSparkPage")) {
                    this.header = methods[i];
                }
            }
            // complain now, not when somebody looks
            fill(null, "");
        }

        public Seq render(HttpServletRequest request) {
            try {
                return (Seq) header.invoke(frames, fill(request, String.valueOf(content.get("body"))));
            } catch (Exception error) {
                throw new IllegalStateException(error.toString());
            }
        }

        private Object[] fill(HttpServletRequest request, String body) throws Exception {
            Class[] kinds = header.getParameterTypes();
            if (!kinds[0].equals(HttpServletRequest.class) || !kinds[3].equals(SparkUITab.class)) {
                throw new IllegalStateException("headerSparkPage has other parameters");
            }
            Object[] given = new Object[kinds.length];
            given[0] = request;
            given[1] = "Penstock";
            given[2] = new Body(body);
            given[3] = tab;
            for (int i = 4; i < given.length; i++) {
                String preset = "headerSparkPage$default$" + (i + 1);
                given[i] = frames.getClass().getMethod(preset, new Class[0]).invoke(frames, new Object[0]);
            }
            return given;
        }
    }

    public static class Body extends scala.runtime.AbstractFunction0 {
        private final String text;

        public Body(String text) {
            this.text = text;
        }

        public Object apply() {
            return new scala.xml.Unparsed(text);
        }
    }
}
"""


SERVLET_SOURCE = """
package penstock;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.function.BiConsumer;

public class MetricsServlet extends HttpServlet implements BiConsumer {
    private volatile String kind = "text/plain";
    private volatile String text = "";

    public void accept(Object kind, Object text) {
        this.kind = (String) kind;
        this.text = (String) text;
    }

    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType(kind);
        response.setHeader("Cache-Control", "no-store");
        response.getWriter().write(text);
    }
}
"""


class SparkTab:
    """The tab "Penstock" in the header of every page of the Spark UI."""

    def __init__(self, spark: SparkSession) -> None:
        """Add the tab; Unsupported with the UI off, SparkUnavailable where Spark does not let it be added."""
        jvm: Any = spark._jvm
        with spark_errors("adding a tab to its UI"):
            self._ui = _find_ui(spark)
            self._content: Any = jvm.java.util.concurrent.ConcurrentHashMap()
            self._content.put(BODY, "")
            self._tab: Any = _compile(self._ui, TAB_SOURCE, TAB_MAKER).apply(self._ui, self._content)
            self._ui.attachTab(self._tab)

    def show(self, text: str) -> None:
        """Let the tab show this, which is markup."""
        with spark_errors("filling its tab"):
            self._content.put(BODY, text)

    def close(self) -> None:
        """Take the tab away."""
        with spark_errors("taking its tab away"):
            self._ui.detachTab(self._tab)


class SparkMetrics:
    """The page `/metrics/penstock/prometheus` on the port of the Spark UI."""

    def __init__(self, spark: SparkSession) -> None:
        """Add the page; Unsupported with the UI off, SparkUnavailable where Spark lets none be added."""
        with spark_errors("adding metrics to its UI"):
            self._ui = _find_ui(spark)
            self._servlet = _compile(self._ui, SERVLET_SOURCE, SERVLET)
            self._ui.attachHandler(METRICS_ROOT, self._servlet, METRICS_PAGE)

    def show(self, text: str) -> None:
        """Serve this, which is what Prometheus reads."""
        with spark_errors("filling its metrics"):
            self._servlet.accept(CONTENT_TYPE, text)

    def close(self) -> None:
        """Take the page away."""
        with spark_errors("taking its metrics away"):
            self._ui.detachHandler(METRICS_ROOT)


def _find_ui(spark: SparkSession) -> Any:
    found = java_context(spark).ui()
    if not found.isDefined():
        raise Unsupported("the Spark UI is off")
    return found.get()


def _compile(ui: Any, source: str, name: str) -> Any:
    """Return a new object of the class of this name, which the source has."""
    loader = ui.getClass().getClassLoader()
    compiler = loader.loadClass(COMPILER).newInstance()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name).newInstance()
