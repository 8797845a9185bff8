using KvCluster.Cli;

namespace KvCluster.Tests.Cli;

public sealed class EntryDocumentTests
{
    [Fact]
    public void WithoutValue_IsNotAnEmptyValue()
    {
        var without = EntryDocument.WithoutValue("key"u8, default);
        Assert.Equal(("key", null, null), (without.Key, without.Value, without.ValueBase64));
        Assert.Equal("", EntryDocument.Of("key"u8, [], default).Value);
    }
}
