package manifest

// Minimal is for the specs.
var Minimal = minimal
