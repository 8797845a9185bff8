using KvCluster.Node.Configuration;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>
/// Budgets follow the limit of the container. With the defaults of a large machine, a node in a container of 320 MiB was ended by the kernel under load.
/// </summary>
public sealed class ProcessMemoryTests
{
    private const string Second = "0::/kubepods/pod1/c2\n";
    private const string First = "12:cpu:/a\n9:memory,hugetlb:/docker/x\n0::/\n";

    [Fact]
    public void LimitOf_GroupsOfTheSecondVersion_IsTheLeastOfThoseAbove() => Assert.Equal(
        300L << 20,
        ProcessMemory.LimitOf(Second, Files(
            ("/sys/fs/cgroup/kubepods/pod1/c2/memory.max", "max"), ("/sys/fs/cgroup/kubepods/pod1/memory.max", $"{300L << 20}"),
            ("/sys/fs/cgroup/kubepods/memory.max", $"{9L << 30}"))));

    [Fact]
    public void LimitOf_GroupsOfTheFirstVersion_IsThatOfTheirController() => Assert.Equal(
        320L << 20, ProcessMemory.LimitOf(First, Files(
            ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", $"{320L << 20}"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"))));

    [Fact]
    public void LimitOf_AContainerThatSeesOnlyItsOwnGroups_IsThatOfTheRoot() =>
        Assert.Equal(1L << 30, ProcessMemory.LimitOf(Second, Files(("/sys/fs/cgroup/memory.max", $"{1L << 30}"))));

    [Fact]
    public void LimitOf_NoLimit_IsNone()
    {
        Assert.Null(ProcessMemory.LimitOf(First, Files(("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"))));
        Assert.Null(ProcessMemory.LimitOf(Second, Files(("/sys/fs/cgroup/memory.max", "max"))));
        Assert.Null(ProcessMemory.LimitOf("", Files()));
    }

    [Theory]
    [InlineData(null, 256)]
    [InlineData(64L << 30, 256)]
    [InlineData(768L << 20, 192)]
    [InlineData(320L << 20, 128)]
    public void CallMemoryDefault_IsAQuarterOfTheLimitWithinBounds(long? limit, int mebibytes) =>
        Assert.Equal(mebibytes, ProcessMemory.CallMemoryDefault(limit));

    [Theory]
    [InlineData(400, 176, 200, 224)]
    [InlineData(400, 176, 256, 256)]
    [InlineData(4096, 816, 656, 3072)]
    [InlineData(4096, 2096, 1136, 2000)]
    [InlineData(4096, 3120, 1520, 1520)]
    public void HeapMax_IsWhatIsLeft_ButEnoughForTheBudgets_AndNoMoreThanTheRuntimesShare(
        int limitMebibytes, int outsideMebibytes, int insideMebibytes, int expected) =>
        Assert.Equal((long)expected << 20, ProcessMemory.HeapMax((long)limitMebibytes << 20, outsideMebibytes, insideMebibytes));

    [Fact]
    public void MemoryRefusal_BelowWhatIsNeeded_NamesTheNumbers()
    {
        var node = Read(NodeSettings.RunTable);
        var refusal = NodeSettings.MemoryRefusal(node, 320L << 20);
        Assert.Contains("320 MiB, and it needs 384: the program 96, memory-budget-mib 128, call-memory-mib 128, and for intersections 32.", refusal);
        Assert.Null(NodeSettings.MemoryRefusal(node, 384L << 20));
        Assert.Null(NodeSettings.MemoryRefusal(node, null));
        Assert.Null(NodeSettings.MemoryRefusal(node, 4L << 30));
        // What is given is not made less in silence.
        Assert.Contains("memory-budget-mib 600", NodeSettings.MemoryRefusal(Read(NodeSettings.RunTable, ("memory-budget-mib", "600")), 512L << 20));
        var router = Read(RouterSettings.RunTable);
        Assert.Contains("160 MiB, and it needs 192", RouterSettings.MemoryRefusal(router, 160L << 20));
        Assert.Null(RouterSettings.MemoryRefusal(router, 192L << 20));
    }

    private static Func<string, string?> Files(params (string Path, string Text)[] files) => path => files.FirstOrDefault(file => file.Path == path).Text;

    private static Settings Read(IReadOnlyList<Setting> table, params (string Name, string Text)[] given)
    {
        var settings = new Settings();
        foreach (var setting in table)
        {
            var text = given.FirstOrDefault(one => one.Name == setting.Name).Text;
            settings.Take(setting, text is null ? null : new SettingValue(text, setting.Flag));
        }
        return settings;
    }
}
