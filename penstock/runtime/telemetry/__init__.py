"""What an autopilot tells others of itself: metrics to scrape, notifications, spans; never in its loop."""
