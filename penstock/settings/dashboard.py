"""Settings of the dashboard: where it listens, and who is let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from penstock.units.fields import Names, OptionalText
from penstock.units.section import Section


class DashboardSettings(Section):
    """The live pages; without an address `penstock dashboard` serves them, and no driver does."""

    prefix: ClassVar[str] = "dashboard_"
    names: ClassVar[Mapping[str, str]] = {"address": "dashboard"}

    address: OptionalText = Field(
        None,
        description="Where the driver itself serves the dashboard, such as `127.0.0.1:4050`; port 0 takes a "
        "free one. `none`: nowhere. `penstock dashboard` listens there, too.",
    )
    token: OptionalText = Field(
        None,
        description="What the address of a page must hold once, as `?token=`; 16 characters or more. On an "
        "address beyond loopback one is made, and logged, where none is given.",
        json_schema_extra={"secret": True},
    )
    proxy_header: OptionalText = Field(
        None,
        description="The header in which a proxy before the dashboard names the user, such as "
        "`X-Forwarded-User`; requests without it are refused. Nobody but the proxy may reach the address.",
    )
    host_names: Names = Field(
        (), description="Names, beside numbers and its own, by which browsers call the dashboard."
    )
    read_only: bool = Field(False, description="Whether the dashboard shows everything and takes no orders.")
