using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>Memory of large tables, of which a store that rests uses a page or two. There are three in each store, with more than 2 MiB together.</summary>
public sealed unsafe class SparseMemoryTests
{
    private const int Bytes = 8 << 20;

    [Fact]
    public void Allocate_Memory_IsZeroedAndInMemoryOnlyWhereItIsWrittenTo()
    {
        var memory = (byte*)SparseMemory.Allocate(Bytes);
        try
        {
            memory[Bytes / 2] = 1;
            if (OperatingSystem.IsLinux())
            {
                var told = new byte[Bytes / Environment.SystemPageSize];
                fixed (byte* pages = told)
                    Assert.Equal(0, LibC.InMemory(memory, Bytes, pages));
                Assert.Equal([told.Length / 2], told.Index().Where(static page => (page.Item & 1) != 0).Select(static page => page.Index));
            }
            Assert.Equal(Bytes - 1, new ReadOnlySpan<byte>(memory, Bytes).Count((byte)0));
        }
        finally
        {
            SparseMemory.Free(memory, Bytes);
        }
    }

    [Fact]
    public void Free_Nothing_IsIgnored() => SparseMemory.Free(null, Bytes);
}
