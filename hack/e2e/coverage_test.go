//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skc.dev/skc/hack/e2e/world"
)

// coverage says which tests hold each entry of the bug log and each of its
// cases. A value that begins with "not here" says where it will be.
var coverage = map[string]string{
	"B-001": "TestB001DottedNameIsRefused",
	"B-002": "TestB002OddRepositoryNames TestB002StartFailsHalfWay",
	"B-004": "TestB004PrefixSibling TestCase002PrefixSibling",
	"B-005": "TestB005TwoInstallsShareNothing",
	"B-007": "TestB007SameBasename TestB007WorktreeSameBasename",
	"B-008": "TestB008Locales",
	"B-010": "TestB010CommandThatLooksLikeAnOption",
	"B-011": "TestB011ArgvExact TestB011SilentEarlyExit",
	"B-013": "TestB013LargeEnvironment TestCase006ArgvLong",
	"B-014": "TestB014EnvironmentAfterServerRestart TestCase007EnvFromFirstStarter",
	"B-016": "TestB016PersonalTmuxConfig",
	"B-017": "TestB017CustomSocketFolder",
	"B-019": "TestB019SocketRemoved",
	"B-020": "TestB020LastSessionRacesStart",
	"B-022": "TestB022ExitsToldApart TestB022ManyEndAtOnce",
	"B-023": "TestB023SecondWindow",
	"B-025": "TestB025StubbornChildren TestB025LeftBehindByADeath TestServerKilledSurvivorIsNotDoubled",
	"B-026": "TestB026SweepDoesNotKillFresh TestB026LookTakesNothingFresh",
	"B-028": "TestB028DoubleStart TestCase010ParallelApplyOneProcess",
	"B-029": "TestB029OneOwner TestCase011TwoControllers",
	"B-031": "TestB031RestartStorm",
	"B-032": "TestB032BackoffReset",
	"B-034": "TestB034StaleLock",
	"B-035": "TestCase014SamePidAfterRestart",
	"B-037": "TestB037BackupCopies",
	"B-038": "TestB038ByteByByte TestCase016SlowWriter TestR9HalfFiles",
	"B-040": "TestB040RemoveAndPutBack",
	"B-041": "TestB041MissedDelete TestB047EventOverflow",
	"B-043": "TestB043OneRootMissing TestB043NoOrphansWhileASourceIsMissing",
	"B-044": "TestB044ChangeWhileRunning",
	"B-046": "TestB046AtomicSaves",
	"B-047": "TestB047EventOverflow",
	"B-049": "TestB049NoEvents",
	"B-050": "TestB050SwapIsNoDeletion TestCase021DotdotDataSwap",
	"B-052": "TestCase022WorktreeRemovedByHand TestB052WorktreeRemovedByHand TestB052ManyLeftovers",
	"B-053": "TestB053LockedAndAway",
	"B-055": "TestCase023IgnoredFilesKept TestB055WorkComesBack TestB055EveryWayToGo TestB055PlainFolders TestB055Retain TestNothingIsLost",
	"B-056": "TestB056CommitsStay TestNothingIsLost",
	"B-058": "TestB058GitThatLies",
	"B-059": "TestCase024TwentyWorktreesAtOnce TestB059LocksThatStay",
	"B-061": "TestB061BranchCheckedOutElsewhere",
	"B-062": "TestB062FourFileSystems",
	"B-064": "not here: the request ledger (its own issue)",
	"B-065": "TestB065DiskFull TestCase027DiskFull TestB065DiskFullKeepsTheWorktree",
	"B-067": "TestB067CrashAtEveryPoint",
	"B-068": "TestB068StatusIsQuiet",
	"B-070": "TestB070Wait TestR24WaitNeverLies",
	"B-071": "TestB071ImplicitTypes",
	"B-073": "TestB073DuplicateKeys",
	"B-074": "TestB074DocumentSeparators",
	"B-076": "TestB076NumberLikeStrings",
	"B-077": "TestB077MalformedFiles",
	"B-079": "TestCase036ForeignWebPage", // and controller/control TestHostile
	"B-080": "TestCase036ForeignWebPage",
	"B-082": "not here: the broker (its own issue)",
	"B-083": "not here: the broker (its own issue)",
	"B-085": "TestB085CanaryInError",
	"B-086": "TestB086NamesThatClimb TestB086LinkIsNotFollowed TestB086BranchesThatClimb TestB086WorkspaceBecomesALink",
	"B-088": "TestB088ForeignSessionIsLeft TestB002StartFailsHalfWay",
	"B-089": "TestB089NoTmux",

	"001-name-with-dot":              "TestB001DottedNameIsRefused",
	"002-prefix-sibling":             "TestCase002PrefixSibling",
	"004-argv-exact":                 "TestB011ArgvExact",
	"006-argv-long":                  "TestCase006ArgvLong",
	"007-env-from-first-starter":     "TestCase007EnvFromFirstStarter",
	"008-exit-codes-told-apart":      "TestB022ExitsToldApart",
	"009-stubborn-children":          "TestB025StubbornChildren",
	"010-parallel-apply-one-process": "TestCase010ParallelApplyOneProcess",
	"011-two-controllers":            "TestCase011TwoControllers",
	"012-restart-storm":              "TestB031RestartStorm",
	"014-same-pid-after-restart":     "TestCase014SamePidAfterRestart",
	"015-backup-copies":              "TestB037BackupCopies",
	"016-slow-writer":                "TestCase016SlowWriter",
	"017-remove-and-put-back":        "TestB040RemoveAndPutBack",
	"019-event-overflow":             "TestB047EventOverflow",
	"021-dotdot-data-swap":           "TestCase021DotdotDataSwap",
	"022-worktree-removed-by-hand":   "TestCase022WorktreeRemovedByHand",
	"023-ignored-files-kept":         "TestCase023IgnoredFilesKept",
	"024-twenty-worktrees-at-once":   "TestCase024TwentyWorktreesAtOnce",
	"027-disk-full":                  "TestCase027DiskFull",
	"029-crash-after-create":         "TestB067CrashAtEveryPoint",
	"031-implicit-types":             "TestB071ImplicitTypes",
	"033-duplicate-keys":             "TestB073DuplicateKeys",
	"034-document-separators":        "TestB074DocumentSeparators",
	"036-foreign-web-page":           "TestCase036ForeignWebPage",
	"038-canary-in-error":            "TestB085CanaryInError",
	"039-names-that-climb":           "TestB086NamesThatClimb",
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// Every entry names tests that exist in the tree, each folder of testdata/cases
// has an entry, and each test here that carries a bug's number is named by it.
func TestEveryBugAndCaseHasATest(t *testing.T) {
	there := map[string]string{}
	world.Must(t, filepath.WalkDir(world.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(data, -1) {
			there[string(m[1])] = path
		}
		return err
	}))
	named := map[string]bool{}
	for id, tests := range coverage {
		if strings.HasPrefix(tests, "not here: ") {
			continue
		}
		for _, name := range strings.Fields(tests) {
			if named[name] = true; there[name] == "" {
				t.Errorf("%s: there is no %s", id, name)
			}
		}
	}
	cases, err := os.ReadDir("testdata/cases")
	world.Must(t, err)
	for _, c := range cases {
		if coverage[c.Name()] == "" {
			t.Errorf("the case %s has no entry", c.Name())
		}
	}
	bug := regexp.MustCompile(`^Test(B[0-9]{3}|Case[0-9]{3})`)
	for name, path := range there {
		if strings.HasPrefix(path, filepath.Join(world.Root(), "hack", "e2e")) && bug.MatchString(name) && !named[name] {
			t.Errorf("no entry names %s", name)
		}
	}
}
