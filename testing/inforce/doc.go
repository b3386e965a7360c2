// Package inforce holds the specs for what takes a rule out of force, and what does not, on a real API server. A rule with
// failurePolicy Fail stays in force while its program is restarted, rolled out or registered by an order, although what
// the rule needs is away: the right to list what it reads, the kind that it reads, its own kind. A rule that was never
// registered waits instead. The package contains only specs.
//
// In each spec, clients create objects that the rule refuses, from before the fault until the end, and a watch looks at
// each state of the rule's entry. A create that fails because the webhook fails counts as refused.
package inforce
