using System.Text;
using KvCluster.Cli;

namespace KvCluster.Tests.Cli;

/// <summary>How messages show keys.</summary>
public sealed class TextTests
{
    [Fact]
    public void ForPeople_ShortBytes_ShowsAllOfThem()
    {
        Assert.Equal("'caf\u00e9'", Text.ForPeople("caf\u00e9"u8));
        Assert.Equal("0xFF00", Text.ForPeople([0xFF, 0]));
    }

    [Fact]
    public void ForPeople_LongBytes_ShowsTheBeginningAndTheLength()
    {
        Assert.Equal($"'{new string('k', 200)}...' (3000 bytes)", Text.ForPeople(Encoding.UTF8.GetBytes(new string('k', 3000))));
        Assert.Equal($"0x{string.Concat(Enumerable.Repeat("FF", 100))}... (101 bytes)", Text.ForPeople(Enumerable.Repeat((byte)0xFF, 101).ToArray()));
    }
}
