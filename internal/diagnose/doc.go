// Package diagnose finds out why something in the path between the API server and the webhook does not work, and
// says it in sentences that name the object and the remedy.
//
// Check is the pre-flight: it asks the API server which rights are missing, and Manifest prints them as RBAC objects
// that can be applied as they are. Run is the diagnosis: it lets the API server call the webhook for an object that
// concerns nobody (see Canary), and looks at everything that the call passes. Neither writes anything, and both do
// with whatever rights they have: what may not be read is said, with the right that is missing.
package diagnose
