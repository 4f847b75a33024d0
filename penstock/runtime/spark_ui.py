"""A tab of ours in the application's own Spark UI, without a jar: Spark's Java compiler makes it.

Private to Spark; seen to work on Spark 4.1 and 4.3. What the tab shows is a text in a map of the JVM that
Python fills, so no callback into Python is needed.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import Unsupported
from penstock.observe.spark_status import java_context, spark_errors

BODY = "body"
COMPILER = "org.codehaus.janino.SimpleCompiler"
MAKER = "penstock.TabMaker"
# `headerSparkPage` has another number of parameters in some versions: those after the fourth have defaults,
# which Scala keeps in methods of their own.
SOURCE = """
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


class SparkTab:
    """The tab "Penstock" in the header of every page of the Spark UI."""

    def __init__(self, spark: SparkSession) -> None:
        """Add the tab; Unsupported with the UI off, SparkUnavailable where Spark does not let it be added."""
        jvm: Any = spark._jvm
        with spark_errors("adding a tab to its UI"):
            found = java_context(spark).ui()
            if not found.isDefined():
                raise Unsupported("the Spark UI is off")
            self._ui: Any = found.get()
            self._content: Any = jvm.java.util.concurrent.ConcurrentHashMap()
            self._content.put(BODY, "")
            loader = self._ui.getClass().getClassLoader()
            compiler = loader.loadClass(COMPILER).newInstance()
            compiler.setParentClassLoader(loader)
            compiler.cook(SOURCE)
            maker = compiler.getClassLoader().loadClass(MAKER).newInstance()
            self._tab: Any = maker.apply(self._ui, self._content)
            self._ui.attachTab(self._tab)

    def show(self, body: str) -> None:
        """Let the tab show this, which is markup."""
        with spark_errors("filling its tab"):
            self._content.put(BODY, body)

    def close(self) -> None:
        """Take the tab away."""
        with spark_errors("taking its tab away"):
            self._ui.detachTab(self._tab)
