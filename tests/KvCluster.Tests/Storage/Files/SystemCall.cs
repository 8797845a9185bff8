namespace KvCluster.Tests.Storage.Files;

/// <summary>A call to the kernel that <see cref="AnsweredCalls"/> sees before the kernel does.</summary>
/// <param name="Name">Which call.</param>
/// <param name="First">For most calls the descriptor, for <see cref="CallName.Advise"/> the address.</param>
/// <param name="Second">For reads and writes the address of the memory; for <see cref="CallName.Advise"/> the length.</param>
/// <param name="Third">For reads and writes the number of bytes; for <see cref="CallName.Advise"/> the advice.</param>
/// <param name="Fourth">For reads and writes the offset in the file.</param>
internal readonly record struct SystemCall(CallName Name, ulong First, ulong Second, ulong Third, ulong Fourth)
{
    public int File => (int)First;

    /// <summary>The number of bytes to read or write.</summary>
    public int Bytes => (int)Third;

    /// <summary>Where in the file they are.</summary>
    public long Offset => (long)Fourth;
}

/// <summary>The calls that can be answered.</summary>
internal enum CallName
{
    Read,
    Write,
    Sync,
    DataSync,
    SyncRange,
    Allocate,
    Truncate,
    Advise,
    Lock,
}

/// <summary>What a call returns.</summary>
/// <param name="Value">What it returns if it does not fail.</param>
/// <param name="Error">The number of its error; 0: it does not fail.</param>
/// <param name="IsKernels">The kernel executes it, and decides.</param>
internal readonly record struct CallAnswer(long Value, int Error = 0, bool IsKernels = false)
{
    public static CallAnswer Kernels { get; } = new(0, IsKernels: true);

    public static CallAnswer Failure(int error) => new(-1, error);
}

/// <summary>Which calls are answered: those with a name, and if told those with a value of an argument.</summary>
/// <param name="Name">The call.</param>
/// <param name="Argument">Which argument, counted from 0; negative: none.</param>
/// <param name="Value">The argument's lower 32 bits.</param>
internal readonly record struct CallFilter(CallName Name, int Argument = -1, uint Value = 0);
