// Package drills makes the outages that admission webhooks are known for, on a real API server, and ends each with what
// Diagnose says. docs/operate.md#known-outages has the list.
package drills
