"""The dashboard: pages for the people who run Peik. Rendered here, whole without JavaScript, and alive with a little of it."""
