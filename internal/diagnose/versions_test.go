package diagnose_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
)

var _ = DescribeTable("Versions of a program",
	func(versions []diagnose.VersionInfo, expected ...types.GomegaMatcher) {
		findings := diagnose.OfVersions(versions...)
		var lines []string
		for _, f := range findings {
			Expect(f).To(And(HaveField("Code", diagnosis.SeveralVersions), HaveField("Remedy", Or(Equal("let the rollout finish, or undo it"), Equal("once all replicas run this version, call its RegisterExtensions")))))
			lines = append(lines, string(f.Severity)+": "+f.Message)
		}
		if len(expected) == 0 {
			Expect(lines).To(BeEmpty())
			return
		}
		Expect(lines).To(HaveExactElements(expected))
	},
	Entry("are no matter if there is one", []diagnose.VersionInfo{{Version: "3fa9", Ours: true, Registered: true}}),
	Entry("are no matter before one is registered", []diagnose.VersionInfo{{Version: "3fa9", Ours: true}, {Version: "77b1"}}),
	Entry("wait for ours", []diagnose.VersionInfo{{Version: "3fa9", Ours: true, Registered: true}, {Version: "77b1"}},
		Equal("note: this version 3fa9 keeps the registration as long as its replicas answer; version 77b1 comes after it")),
	Entry("go before ours", []diagnose.VersionInfo{
		{Version: "3fa9", Registered: true, Steps: []string{"old"}}, {Version: "77b1", Ours: true, Steps: []string{"old", "new"}},
	}, Equal("warning: version 3fa9 keeps the registration as long as its replicas answer; this version 77b1 comes after it, and until then its new steps are not called: new")),
	Entry("wait in a row", []diagnose.VersionInfo{{Version: "a", Registered: true}, {Version: "b"}, {Version: "c", Ours: true}},
		Equal("note: version a keeps the registration as long as its replicas answer; version b comes after it"),
		Equal("warning: version a keeps the registration as long as its replicas answer; this version c comes after version b")),
	Entry("are known to the serving half of one that is not registered", []diagnose.VersionInfo{{Version: "a", Registered: true}, {Version: "b"}},
		Equal("note: version a keeps the registration as long as its replicas answer; version b comes after it"),
		Equal("warning: version a is registered, and this process serves another one, so its new steps are not called")),
)
