using System.Reflection;

namespace KvCluster.ServiceDefaults.Programs;

/// <summary>The version of the programs, which all assemblies of a build share.</summary>
internal static class ProgramVersion
{
    /// <summary>With the commit that it was built from, for example "0.1.0+a94a8fe".</summary>
    public static string Full { get; } =
        typeof(ProgramVersion).Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()!.InformationalVersion;

    /// <summary>Without the commit.</summary>
    public static string Short => Full.Split('+')[0];
}
