// Package drills makes the outages that admission webhooks are known for, on a real API server. Those of a webhook that
// is called in vain end with the finding of Diagnose, and docs/operate.md#known-outages has the list. Those of objects that
// cannot be deleted or edited end with a Rule that lets them be.
package drills
