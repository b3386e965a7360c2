// Package conformance holds the scenarios with which the Kubernetes project tests admission webhooks, with this
// library as the webhook server and a real control plane as the client. It has no code but its specs.
//
// A spec is named after its scenario and labelled with its number (S13, say) and, where the way in which the
// API server calls makes a difference, with its mode: URL or Service. So
//
//	go test ./testing/conformance -v -ginkgo.label-filter='S13 && Service'
//
// plays one scenario in one mode. A run of all specs ends with a table of all scenarios, and fails where one
// has neither a spec that ran nor a reason why there is none. The API server may be of an older release (make
// conformance K8S=1.34): what it does not have yet is told below the table.
package conformance
