namespace KvCluster.Tests.Storage.Store;

/// <summary>A program that fails, and of which nothing can be left out.</summary>
/// <param name="Lines">Its commands.</param>
/// <param name="Failure">How it fails.</param>
/// <param name="FailedLine">The command at or after which it fails, counted from 0; behind the last one: when the store is closed.</param>
/// <param name="LinesAtFirst">The commands of the random program of which it was a part.</param>
internal sealed record FailingProgram(IReadOnlyList<string> Lines, Exception Failure, int FailedLine, int LinesAtFirst)
{
    /// <summary>The program, a command per line, and how it fails.</summary>
    public override string ToString() =>
        $"""
        of a program of {LinesAtFirst} commands these are left, which fail:
        {string.Join('\n', Lines.Select((line, index) => $"  {index + 1}. {line}"))}
        {(FailedLine < Lines.Count ? $"After command {FailedLine + 1}" : "At the end")}: {Failure.GetType().Name}: {Failure.Message}
        """;
}
