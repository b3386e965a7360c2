package slogcore

// This file specifies the logger of a program that gives none.

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
)

var _ = Describe("The default logger", func() {
	It("logs readable lines on a terminal, and JSON elsewhere", func() {
		for terminal, line := range map[bool]string{
			true:  `^\d\d:\d\d:\d\d\.\d{3}\tINFO\teirinix\tready\t{"port": 443}\n$`,
			false: `^{"level":"info","ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)","logger":"eirinix","caller":"[^"]+","msg":"ready","port":443}\n$`,
		} {
			path := filepath.Join(GinkgoT().TempDir(), "log")
			config := loggerConfig(terminal)
			config.OutputPaths = []string{path}
			logger, err := config.Build()
			Expect(err).NotTo(HaveOccurred())
			logger.Named("eirinix").Info("ready", zap.Int("port", 443))
			text, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(MatchRegexp(line))
		}
	})

	It("logs JSON to a standard error that is no terminal, and nothing to one that is closed", func() {
		was, path := os.Stderr, filepath.Join(GinkgoT().TempDir(), "log")
		DeferCleanup(func() { os.Stderr = was })
		file, err := os.Create(path)
		Expect(err).NotTo(HaveOccurred())
		os.Stderr = file
		NewDefault().Info("ready")
		text, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(HavePrefix(`{"level":"info"`))
		Expect(file.Close()).To(Succeed())
		NewDefault().Info("lost")
	})
})
