
namespace KvCluster.Cli;

/// <summary>Exit codes of `kv`. Scripts depend on them, so they are stable. Which failure has which: <see cref="Failures"/>.</summary>
internal static class ExitCodes
{
    public const int Done = 0;
    public const int NotFound = 1;

    /// <summary>The command line, a file or a record in it is wrong.</summary>
    public const int Usage = 2;

    public const int Unavailable = 3;
    public const int ConditionFailed = 4;
    public const int OutcomeUnknown = 5;
    public const int VerifyFoundDifferences = 6;

    /// <summary>Of <c>doctor</c>: there is a problem; of <c>selftest</c>: a check failed.</summary>
    public const int ProblemsFound = 7;

    public const int Internal = 70;

    /// <summary>Whoever reads the output ended before everything was printed. The same as of programs that a SIGPIPE ends.</summary>
    public const int ReaderGone = 141;
}
