namespace KvCluster.Tests.Replication;

/// <summary>
/// Conversations of whole clusters, as readable files. KV_TRANSCRIPTS=directory writes the files as they are now, for review after an intended
/// change.
/// </summary>
public sealed class ClusterTranscriptTests
{
    private static readonly string _folder = Path.Combine(AppContext.BaseDirectory, "Replication", "Transcripts");

    public static TheoryData<string> Files() =>
        new(Directory.EnumerateFiles(_folder, "*.txt").Select(file => Path.GetFileName(file)).Order(StringComparer.Ordinal));

    [Theory]
    [MemberData(nameof(Files))]
    public void Transcript_MatchesWhatTheCoresDo(string file)
    {
        var expected = File.ReadAllText(Path.Combine(_folder, file)).ReplaceLineEndings("\n");
        var shown = ClusterTranscript.Run(expected);
        if (Environment.GetEnvironmentVariable("KV_TRANSCRIPTS") is { Length: > 0 } folder)
            File.WriteAllText(Path.Combine(folder, file), shown);
        Assert.Equal(expected, shown);
    }
}
