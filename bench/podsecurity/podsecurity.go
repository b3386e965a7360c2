// Package podsecurity compares implementations of the Pod Security Standard "restricted" in front of a real API server:
// programs on this library, other webhooks, policy engines, and the API server's own policies.
package podsecurity
