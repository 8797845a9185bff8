using System.Diagnostics;
using System.Text.RegularExpressions;
using Mono.Cecil;
using Mono.Cecil.Cil;
using Mono.Cecil.Rocks;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>
/// Makes switch points of what threads see of each other in a compiled assembly: calls of <c>Volatile</c>, <c>Interlocked</c> and locks, accesses of volatile
/// fields and of the links that readers follow while the writer replaces them, and what runs threads. Nothing else is changed, and the sources know nothing of
/// it.
/// </summary>
internal static partial class EngineRewriting
{
    /// <summary>Static methods that are replaced where they are called; each class has one of that name among the stepped ones.</summary>
    private static readonly HashSet<string> _callees =
    [
        "System.Threading.Volatile", "System.Threading.Interlocked", "System.Threading.Monitor", "System.Threading.ThreadPool",
    ];

    /// <summary>Types that are replaced wherever they are named.</summary>
    private static readonly HashSet<string> _types =
        ["System.Threading.Lock", "System.Threading.Thread", "System.Threading.SpinWait", "System.Collections.Concurrent.ConcurrentQueue`1"];

    /// <summary>Their accesses to shared memory are counts that anybody may look at, and on which nothing depends.</summary>
    private static readonly HashSet<string> _counting =
    [
        "KvCluster.Storage.Pages.ScratchPool", "KvCluster.Storage.DataFile.PageReclamation", "KvCluster.Storage.DataFile.RetiredPages`1",
        "KvCluster.Storage.Context.MemoryAccount", "KvCluster.Storage.Maintenance.CheckpointBacklog",
    ];

    /// <summary>Methods whose accesses through pointers are switch points.</summary>
    private static readonly HashSet<string> _ofLinks =
    [
        "PageLink.Load", "PageLink.LoadWhole", "PageLink.Store", "TreePage.StorePlaced", "DeltaPage.Base", "DeltaPage.StoreBase",
    ];

    /// <summary>The assembly with switch points, as a file.</summary>
    /// <exception cref="UnreachableException">A method that must have switch points is not there.</exception>
    public static Stream Rewrite(string path)
    {
        using var module = ModuleDefinition.ReadModule(path);
        var target = new Target(module);
        foreach (var type in module.GetTypeReferences())
        {
            if (_types.Contains(type.FullName))
                (type.Scope, type.Namespace) = (target.Assembly, target.Namespace);
        }
        var links = new HashSet<string>();
        foreach (var method in module.GetTypes().SelectMany(static type => type.Methods).Where(static method => method.HasBody))
        {
            var name = $"{method.DeclaringType.Name}.{method.Name}";
            var isOfLinks = _ofLinks.Contains(name);
            if (isOfLinks)
                links.Add(name);
            Rewrite(method, target, isOfLinks, isCounting: _counting.Contains(OutermostOf(method.DeclaringType).FullName));
        }
        if (module.Assembly.Name.Name == "KvCluster.Storage" && !links.SetEquals(_ofLinks))
            throw new UnreachableException($"These methods are not in the engine any more: {string.Join(", ", _ofLinks.Except(links))}.");
        var rewritten = new MemoryStream();
        module.Write(rewritten);
        rewritten.Position = 0;
        return rewritten;
    }

    private static TypeDefinition OutermostOf(TypeDefinition type) => type.DeclaringType is { } outer ? OutermostOf(outer) : type;

    private static void Rewrite(MethodDefinition method, Target target, bool isOfLinks, bool isCounting)
    {
        // Short jumps may become too long.
        method.Body.SimplifyMacros();
        var code = method.Body.GetILProcessor();
        foreach (var instruction in method.Body.Instructions.ToArray())
        {
            if (instruction.Operand is MethodReference callee && target.InPlaceOf(callee, isCounting) is { } stepped)
                (instruction.OpCode, instruction.Operand) = (OpCodes.Call, stepped);
            else if (instruction.OpCode == OpCodes.Volatile || (isOfLinks && PointerAccess().IsMatch(instruction.OpCode.Name)))
                InsertBefore(code, instruction, target.BeforeAccess);
        }
        method.Body.OptimizeMacros();
    }

    /// <summary>Those who jump to the instruction jump to the call then.</summary>
    private static void InsertBefore(ILProcessor code, Instruction instruction, MethodReference called)
    {
        var moved = code.Create(OpCodes.Nop);
        (moved.OpCode, moved.Operand) = (instruction.OpCode, instruction.Operand);
        (instruction.OpCode, instruction.Operand) = (OpCodes.Call, called);
        code.InsertAfter(instruction, moved);
    }

    [GeneratedRegex(@"^(?:ld|st)(?:ind\.|obj$|fld$)")]
    private static partial Regex PointerAccess();

    /// <summary>The stepped methods, as the rewritten assembly refers to them.</summary>
    private sealed class Target
    {
        private readonly ModuleDefinition _module;

        public Target(ModuleDefinition module)
        {
            _module = module;
            var name = typeof(EngineRewriting).Assembly.GetName();
            Assembly = new AssemblyNameReference(name.Name, name.Version);
            module.AssemblyReferences.Add(Assembly);
            BeforeAccess = new MethodReference(
                nameof(Schedule.BeforeAccess), module.TypeSystem.Void, Type(typeof(Schedule).Namespace!, nameof(Schedule)));
        }

        public AssemblyNameReference Assembly { get; }

        public string Namespace { get; } = typeof(Stepped.Volatile).Namespace!;

        public MethodReference BeforeAccess { get; }

        /// <summary>Null if the method stays.</summary>
        public MethodReference? InPlaceOf(MethodReference callee, bool isCounting)
        {
            var type = callee.DeclaringType.FullName;
            if (type == "KvCluster.Storage.Pages.ScratchPool" && callee.Name == "Return")
                return Freeing("Return", callee);
            if (type == "KvCluster.Storage.Pages.FreeMap" && callee.Name == "AllowReuse")
                return Freeing("AllowReuse", callee);
            if (type == "System.Environment" && callee.Name == "get_CurrentManagedThreadId")
                return Like(callee, Type(Namespace, nameof(Stepped.Environment)));
            return _callees.Contains(type) && !isCounting ? Like(callee, Type(Namespace, callee.DeclaringType.Name)) : null;
        }

        private TypeReference Type(string space, string name) => new(space, name, _module, Assembly);

        /// <summary>A static method that takes the object as its first parameter.</summary>
        private MethodReference Freeing(string name, MethodReference callee)
        {
            var method = new MethodReference(name, callee.ReturnType, Type(Namespace, nameof(Stepped.FreedPages)));
            method.Parameters.Add(new ParameterDefinition(callee.DeclaringType));
            foreach (var parameter in callee.Parameters)
                method.Parameters.Add(new ParameterDefinition(parameter.ParameterType));
            return method;
        }

        private static MethodReference Like(MethodReference callee, TypeReference type)
        {
            var element = callee.GetElementMethod();
            var method = new MethodReference(element.Name, element.ReturnType, type);
            foreach (var parameter in element.GenericParameters)
                method.GenericParameters.Add(new GenericParameter(parameter.Name, method));
            foreach (var parameter in element.Parameters)
                method.Parameters.Add(new ParameterDefinition(parameter.ParameterType));
            if (callee is not GenericInstanceMethod instance)
                return method;
            var made = new GenericInstanceMethod(method);
            foreach (var argument in instance.GenericArguments)
                made.GenericArguments.Add(argument);
            return made;
        }
    }
}
