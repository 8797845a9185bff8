using KvCluster.Cli;
using KvCluster.Client;

namespace KvCluster.Tests.Cli;

/// <summary>The lines of `kv watch` in JSON.</summary>
public sealed class WatchDocumentTests
{
    [Theory]
    [InlineData(KvEventKind.Put, KvEventReason.User, "")]
    [InlineData(KvEventKind.Touch, KvEventReason.User, "")]
    [InlineData(KvEventKind.Delete, KvEventReason.User, "deleted")]
    [InlineData(KvEventKind.DeleteRange, KvEventReason.User, "deleted")]
    [InlineData(KvEventKind.Delete, KvEventReason.Expired, "expired")]
    [InlineData(KvEventKind.Delete, KvEventReason.SessionEnded, "session ended")]
    public void Removal_OfAnEvent_SaysWhyTheKeyIsGone(KvEventKind kind, KvEventReason reason, string told) =>
        Assert.Equal(told, WatchDocument.RemovalOf(new KvEvent(kind, reason, default, default)));

    /// <summary>Lines that are no events were printed and not described.</summary>
    [Fact]
    public void EveryKindOfLine_IsInTheReadme()
    {
        var described = Assert.Single(
            House.House.Read("client/Cli/README.md").Split('\n'), static line => line.StartsWith("| `watch` | one line per event", StringComparison.Ordinal));
        var kinds = Enum.GetValues<KvEventKind>().Where(static kind => kind != KvEventKind.Unknown).Select(WatchDocument.NameOf)
            .Concat([WatchPositionDocument.Bookmark, WatchPositionDocument.InitialComplete, new WatchForgetDocument().Kind]);
        Assert.All(kinds, kind => Assert.Contains(kind, described, StringComparison.Ordinal));
    }
}
