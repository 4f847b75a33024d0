"""The autopilot of one application: attach, the loop and its ports, the handle, the control socket."""
