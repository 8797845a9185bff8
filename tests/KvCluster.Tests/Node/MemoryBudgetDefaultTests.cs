using System.Globalization;
using KvCluster.Node.Configuration;

namespace KvCluster.Tests.Node;

/// <summary>The memory that the stores of a node may use if nobody says how much.</summary>
public sealed class MemoryBudgetDefaultTests
{
    [Theory]
    [InlineData(16L << 30, 4_096)]
    [InlineData(3L << 30, 768)]
    [InlineData(512L << 20, 128)]
    [InlineData(100L << 20, 128)]
    [InlineData(1L << 50, 1 << 28)]
    public void Default_IsAQuarterOfWhatMayBeUsedAndNotLessThanTheLeast(long availableBytes, int mebibytes) =>
        Assert.Equal(mebibytes, NodeOptions.MemoryBudgetDefault(availableBytes));

    /// <summary>Of the machine, or of less in a container or with a limit for .NET. A wrong unit would be off by a factor of a thousand.</summary>
    [Fact]
    public void Default_OnThisMachine_IsAQuarterOfItsMemoryAtMost()
    {
        var machine = PhysicalMebibytes();
        var available = GC.GetGCMemoryInfo().TotalAvailableMemoryBytes >> 20;
        Assert.InRange(available, 1, machine);
        Assert.InRange(
            NodeOptions.MemoryBudgetDefault(), Math.Max(NodeOptions.MemoryBudgetMin, (int)(available / 4)), Math.Max(NodeOptions.MemoryBudgetMin, machine / 4));
    }

    private static int PhysicalMebibytes()
    {
        if (!OperatingSystem.IsLinux())
            return int.MaxValue;
        var total = File.ReadLines("/proc/meminfo").First(static line => line.StartsWith("MemTotal:", StringComparison.Ordinal));
        return (int)(long.Parse(total.Split(' ', StringSplitOptions.RemoveEmptyEntries)[1], CultureInfo.InvariantCulture) >> 10);
    }
}
