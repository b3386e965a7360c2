// Package traces shows that a call of a webhook is part of the API server's trace. Its test starts an API server that
// traces, and a Manager, which both send their spans to a receiver in the test. It is a module of its own, so that the
// library does not depend on OpenTelemetry's SDK.
package traces
